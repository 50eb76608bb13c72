"""Policies in the same worlds: which is better, where, and by how much."""
