"""Scores and privacy measures: Metric classes over pure functions."""
