"""Relevance propagation and deletion curves."""
