"""Probes: callbacks that attack the model at epoch ends and leave no trace in it."""
