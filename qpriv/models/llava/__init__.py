"""LLaVA: its stock model, its frozen encoders, its adapters, and how it is loaded."""
