"""What every run has beside its probes: checkpoints, exports, the live report."""
