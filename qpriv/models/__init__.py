"""Frozen encoders, LLaVA and document models, loaded by hub id, folder or name."""

import logging

# PEFT imports bitsandbytes, which warns of a faster 4-bit kernel even where nothing is quantised
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
