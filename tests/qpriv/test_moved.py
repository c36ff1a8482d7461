"""Names of 0.1 give the modules of today, and say so."""

import sys
from importlib import import_module

import pytest

from qpriv.moved import MOVED, today

NEEDS_AN_EXTRA = "qpriv.paradigms.flower"


@pytest.mark.parametrize("old", sorted(MOVED.keys() - {NEEDS_AN_EXTRA}))
def test_a_module_of_0_1_is_the_module_of_today(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} is {MOVED[old]} now"):
        assert import_module(old) is import_module(MOVED[old])


def test_what_lay_in_a_package_that_moved_is_not_loaded_twice() -> None:
    with pytest.warns(DeprecationWarning):
        from qpriv.boundary.channel import Channel as Old  # type: ignore[import-not-found]
    from qpriv.split.channel import Channel

    assert Old is Channel


def test_no_module_of_today_bears_a_name_of_0_1() -> None:
    assert all(today(name) is None for name in MOVED.values())
