"""Attacks, one per file; each reads only what its threat model grants."""
