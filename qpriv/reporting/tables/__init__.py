"""Results as tables, for the page."""

from .attacks import AttackTables, attack_tables
from .documents import document_tables
from .policies import other_table, paradigm_table, policy_table, question_type_table, sweep_table
from .table import Cell, Row, Table

__all__ = [
    "AttackTables",
    "Cell",
    "Row",
    "Table",
    "attack_tables",
    "document_tables",
    "other_table",
    "paradigm_table",
    "policy_table",
    "question_type_table",
    "sweep_table",
]
