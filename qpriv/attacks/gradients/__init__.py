"""Attacks on what is shared in training: updates of clients, gradients at a cut."""
