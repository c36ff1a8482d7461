"""Compare file names that are spelt differently and mean the same file."""

import unicodedata

_ENDINGS = {"jpeg": "jpg", "jpe": "jpg", "tiff": "tif"}
"""Endings that are another spelling of an ending, not another format."""


def canonical(name: str) -> str:
    r"""Return a name with forward slashes, composed letters, and neither ``.`` nor empty parts.

    Windows writes backslashes, macOS decomposes letters, and ``./`` says nothing.

    >>> canonical(".\\images\\a.jpg"), canonical("images//cafe\N{COMBINING ACUTE ACCENT}.jpg")
    ('images/a.jpg', 'images/café.jpg')
    """
    if not name.isascii():
        name = unicodedata.normalize("NFC", name)
    name = name.strip().replace("\\", "/")
    if "//" in name or name.startswith(("./", "/")) or "/./" in name or name.endswith(("/", "/.")):
        name = "/".join(part for part in name.split("/") if part not in ("", "."))
    return name


def folded(name: str) -> str:
    """Return what canonical names have in common that differ in case or spell their ending anew.

    >>> folded("Images/A.JPEG") == folded("images/a.jpg"), folded("a.png") == folded("a.jpg")
    (True, False)
    """
    if name.isascii():
        name = name.lower()
    else:
        name = unicodedata.normalize("NFC", name.casefold())
    stem, dot, ending = name.rpartition(".")
    return f"{stem}{dot}{_ENDINGS[ending]}" if ending in _ENDINGS else name
