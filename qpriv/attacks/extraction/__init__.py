"""Extraction of training answers from document models."""
