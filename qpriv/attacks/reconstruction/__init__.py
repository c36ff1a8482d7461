"""Attacks that give back the picture whose activations crossed a cut."""
