"""From run folders to a page a person can read: figures, tables, claims, pictures."""

from .report import write_report

__all__ = ["write_report"]
