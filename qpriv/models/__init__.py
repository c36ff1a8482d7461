"""Frozen encoders, LLaVA and document models, loaded by hub id, folder or name."""
