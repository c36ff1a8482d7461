"""Pickles read without running what is in them."""

import io
import pickle
import struct
from typing import Any, TypeVar

import msgspec

from qpriv.errors import DataError

from .files import DataFile, read_data

T = TypeVar("T")
Globals = frozenset[tuple[str, str]]

NO_GLOBALS: Globals = frozenset()
NUMPY_ARRAY: Globals = frozenset(
    {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }
)
"""What a pickled numpy array refers to."""

# where numpy keeps `_reconstruct` since version 2, so that old files load without a warning
_MOVED = {"numpy.core.multiarray": "numpy._core.multiarray"}


class _Unpickler(pickle.Unpickler):
    """Admits containers, strings and numbers, and the listed globals; the rest is refused."""

    def __init__(self, data: bytes, allowed: Globals, where: str) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")  # Python 2 wrote these files
        self._allowed, self._where = allowed, where

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """Return an admitted global.

        Raises:
            DataError: If it is not admitted.
        """
        if (module, name) not in self._allowed:
            raise DataError(
                f"the pickle refers to {module}.{name}, so loading it could run code",
                where=self._where,
                remedy="do not use this file; get the release from its source",
            )
        return super().find_class(_MOVED.get(module, module), name)


def load_pickle(file: DataFile, kind: type[T], allowed: Globals = NO_GLOBALS) -> T:
    """Return the content of a pickle as the declared type; no code of the file runs.

    Args:
        file: The pickle.
        kind: A type msgspec converts to, such as a list of structs; fields it does not declare
            are dropped.
        allowed: Globals the pickle may refer to, as pairs of module and name.

    Raises:
        DataError: If the file is broken, refers to any other global, or holds something else;
            names the file, the record and the field.
    """
    data = read_data(file)
    try:
        content = _Unpickler(data, allowed, file.name).load()
    except (
        pickle.UnpicklingError, EOFError, struct.error, MemoryError, ArithmeticError,
        AttributeError, ImportError, LookupError, TypeError, ValueError,
    ) as error:  # fmt: skip
        # a damaged pickle makes the machine that reads it stumble in any of these ways
        raise DataError(
            f"not a readable pickle: {error or type(error).__name__}",
            where=file.name,
            remedy="download it again",
        ) from error
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise DataError(
            f"unexpected content: {error}",
            where=file.name,
            remedy="this is not the release's format",
        ) from error
