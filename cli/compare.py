"""``qpriv compare A B``: two run folders side by side."""

import json
from collections.abc import Sequence
from pathlib import Path

from .errors import command_parser


def run(words: Sequence[str]) -> None:
    """Print every figure of two runs, their difference, and the settings that differ.

    Args:
        words: ``compare`` and its arguments.
    """
    parser = command_parser(
        "compare", "Set two runs side by side, such as one with a defence and one without."
    )
    parser.add_argument("one", type=Path, metavar="A", help="a run folder")
    parser.add_argument("other", type=Path, metavar="B", help="another, which A is subtracted from")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")
    given = parser.parse_args(words[1:])
    from qpriv.reporting.compare import compare_runs

    found = compare_runs(given.one, given.other)
    print(json.dumps(found.as_dict(), ensure_ascii=False) if given.json else found)
