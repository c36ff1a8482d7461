"""Attacks on gradients shared in training: updates of clients, gradients at a cut."""
