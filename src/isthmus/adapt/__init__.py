"""Policies that find out in which world they are, and the choice of the worlds they learn in."""
