"""Attacks that run at epoch ends, and what keeps them apart from the training."""
