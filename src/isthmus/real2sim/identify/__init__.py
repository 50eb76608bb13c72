"""From recordings to what the robot is: its numbers, with intervals, as one twin per unit."""
