"""Measurements beside plain loops, run by hand from the root of the repository."""
