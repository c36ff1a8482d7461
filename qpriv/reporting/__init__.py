"""From run folders to a page a person can read: figures, tables, claims, pictures."""

from .report import write_page, write_report
from .study import run_study
from .text import format_table

__all__ = ["format_table", "run_study", "write_page", "write_report"]
