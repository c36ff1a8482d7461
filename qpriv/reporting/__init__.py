"""From run folders to a page a person can read: figures, tables, claims, pictures."""

from .report import write_page, write_report
from .text import format_table

__all__ = ["format_table", "write_page", "write_report"]
