"""Rows of a decoder that get shorter: sequences, hooks, and what layers are told of them."""
