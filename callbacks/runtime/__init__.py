"""Callbacks of every run besides its probes: checkpoints, exports, the live report."""
