"""Attacks that reconstruct the picture whose activations crossed a cut."""
