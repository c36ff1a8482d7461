"""``qpriv features``: how much the feature cache holds, and how to clear it."""

from collections.abc import Sequence
from pathlib import Path

from .errors import command_parser

DEFAULT = Path("runs/.features")
"""Where modules keep features unless ``--model.feature_cache`` names another folder."""


def run(words: Sequence[str]) -> None:
    """Say what a feature cache holds, or clear it.

    Args:
        words: ``features`` and its arguments.
    """
    parser = command_parser("features", "Show the size of the feature cache, or clear it.")
    parser.add_argument("--folder", type=Path, default=DEFAULT, help=f"default: {DEFAULT}")
    parser.add_argument("--clear", action="store_true", help="remove all cached features")
    given = parser.parse_args(words[1:])
    from qpriv.models.cache import clear, stored_features

    files = stored_features(given.folder)
    size = readable(sum(path.stat().st_size for path in files))
    if given.clear:
        clear(given.folder)
        print(f"removed {len(files)} files, {size}, from {given.folder}")
        return
    print(f"{given.folder}: {len(files)} files, {size}")
    if files:
        print("  The features can be inverted to pictures. Only their owner can read the folder.")
        print("  qpriv features --clear removes them; --model.feature_cache null stores none.")


def readable(size: int) -> str:
    """Return a number of bytes as people read it.

    >>> readable(0), readable(1500), readable(2_340_000)
    ('0 bytes', '1.5 kB', '2.3 MB')
    """
    for limit, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size} bytes"
