"""Groups of records: what must never straddle two splits, a patient where records name one.

A field of the record names its group. A record without one is grouped by its image, or by its
document in sets of documents. Rows that share an image are one group in any case, whatever their
fields say.
"""

import math
import re
import unicodedata
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar, cast

import msgspec

from qpriv.errors import DataError

from .report import NAMED, DataReport

T = TypeVar("T", bound=msgspec.Struct)

_WHOLES = ("patient", "subject", "person", "group")
_PLAIN = ("patient", "Patient", "group", "Group")  # `subject` alone is mostly a topic
_NOTHING = frozenset({"", "nan", "none", "null", "na", "n/a", "unknown", "?", "-"})
_NUMBER = re.compile(r"0*(\d+)(?:\.0+)?", re.ASCII)


def common_fields() -> tuple[str, ...]:
    """Return the fields that are looked for where none is named, the first ones preferred.

    >>> common_fields()[:4]
    ('patient_id', 'patientId', 'PatientId', 'PatientID')
    """
    spelt = [spelling for whole in _WHOLES for spelling in _spellings(whole)]
    return (*spelt, *_PLAIN)


def _spellings(whole: str) -> list[str]:
    title = whole.capitalize()
    return [
        f"{whole}_id", f"{whole}Id", f"{title}Id", f"{title}ID", f"{whole}ID", f"{whole}id",
        f"{title} ID", f"{title}_ID", f"{whole} id", f"{whole.upper()}_ID", f"{whole}-id",
    ]  # fmt: skip


def group_name(value: object) -> str:
    """Return a group as records name it, "" where they name none.

    A number and its text are one group, with leading zeros or without: tables lose them.

    Raises:
        TypeError: If it is neither text nor a number.

    >>> group_name("007"), group_name(7), group_name(7.0), group_name(" P-07 "), group_name("NaN")
    ('7', '7', '7', 'P-07', '')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"a group is text or a number, not {type(value).__name__}")
    text = unicodedata.normalize("NFC", str(value)).strip()
    number = _NUMBER.fullmatch(text)
    return number[1] if number else "" if text.lower() in _NOTHING else text


class Groups:
    """The groups of a split's records, by a field of them.

    Args:
        prefix: Name of the set in the names of groups.
        report: Counts the rows by what groups them.
        field: The field; the first of `common_fields` that a record fills where None.
    """

    def __init__(self, prefix: str, report: DataReport, field: str | None = None) -> None:
        self._prefix, self._report = prefix, report
        self._fields = common_fields() if field is None else (field,)
        self._asked = field
        self._attributes: dict[type, dict[str, str]] = {}

    def extended(self, record: type[T]) -> type[T]:
        """Return a record type that also holds the fields that may name a group."""
        declared = {field.encode_name: field.name for field in msgspec.structs.fields(record)}
        more = {name: f"group_{i}" for i, name in enumerate(self._fields, start=len(declared))}
        more = {name: attribute for name, attribute in more.items() if name not in declared}
        fields = [
            (attribute, Any, msgspec.field(name=name, default=None))
            for name, attribute in more.items()
        ]
        made = msgspec.defstruct(record.__name__, fields, bases=(record,), kw_only=True, gc=False)
        kind = cast(type[T], made)
        self._attributes[kind] = {name: declared.get(name) or more[name] for name in self._fields}
        return kind

    def of(self, record: msgspec.Struct, where: str) -> str | None:
        """Return the group that a record names, None where it names none.

        Args:
            record: A record of an `extended` type.
            where: Its place, for messages.

        Raises:
            DataError: If the field that was asked for holds neither text nor a number.
        """
        for name, attribute in self._attributes[type(record)].items():
            if (value := getattr(record, attribute)) is None:
                continue
            try:
                group = group_name(value)
            except TypeError as error:
                self._refuse(name, error, where)
                continue
            if group:
                self._report.grouped_by[name] += 1
                return f"{self._prefix}/{NAMED}{group}"
        self._report.grouped_by[self._report.default_group] += 1
        return None

    def _refuse(self, name: str, error: TypeError, where: str) -> None:
        if self._asked is not None:
            raise DataError(
                f"{name}: {error}", where=where, remedy="name another field as `group_field`"
            )
        self._report.note(f"{name} is not read as a group: {error}")


def check_groups(report: DataReport, field: str | None) -> None:
    """Check that a field that was asked for is in some record.

    Raises:
        DataError: If it is in none.
    """
    if field is not None and report.grouped_by.total() and not report.grouped_by[field]:
        raise DataError(
            f"no record of {report.dataset}/{report.split} has the group_field {field!r}",
            where=", ".join(report.files),
            remedy=f"spell it as in the file, or leave group_field out to group by "
            f"{report.default_group}",
        )


def joined(rows: Iterable[tuple[Hashable, str]]) -> dict[str, str]:
    """Return the new names of groups that share an image, and are therefore one.

    Args:
        rows: Image and group of every row.

    >>> joined([("a.jpg", "7"), ("a.jpg", "a"), ("b.jpg", "7"), ("c.jpg", "c")])
    {'a': '7'}
    """
    group_of: dict[Hashable, str] = {}
    parents: dict[str, str] = {}

    def root(group: str) -> str:
        while (parent := parents.get(group, group)) != group:
            group = parent
        return group

    for image, group in rows:
        one, other = root(group_of.setdefault(image, group)), root(group)
        if one != other:
            parents[max(one, other)] = min(one, other)
    return {group: root(group) for group in parents}
