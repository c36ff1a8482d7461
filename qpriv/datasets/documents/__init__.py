"""Document sets, fake documents, and the canaries hidden in them."""
