"""Checks of an object against a protocol: missing members and wrong types."""

import inspect
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, Protocol, get_type_hints

from torch import nn


def members(protocol: type) -> dict[str, Any]:
    """Return the members that a protocol's body declares, by name."""
    bases = [base for base in reversed(protocol.__mro__) if base not in (Protocol, object)]
    return {
        name: value
        for base in bases
        for name, value in vars(base).items()
        if not name.startswith("_")
    }


def missing(given: object, protocol: type) -> list[str]:
    """Return the names of the members that an object lacks, in the protocol's order.

    A member that exists but cannot be read is not missing; `faults` reports it. ``isinstance``
    does not make this distinction and, from Python 3.12 on, does not see a module's submodules.
    """
    return [name for name in members(protocol) if not _has(given, name)]


def faults(given: object, protocol: type) -> list[str]:
    """Return a short description of each invalid member of an object.

    An attribute must have the protocol's type, and a method must accept the arguments that attacks
    pass.
    """
    names = [name for name in members(protocol) if _has(given, name)]
    return [fault for name in names for fault in _faults(given, name, members(protocol)[name])]


def _has(given: object, name: str) -> bool:
    if hasattr(type(given), name):
        return True
    try:
        getattr(given, name)
    except AttributeError:
        return False
    except Exception:  # the member exists, even if reading it fails
        return True
    return True


def _faults(given: object, name: str, declared: Any) -> Iterator[str]:  # noqa: ANN401 - of any kind
    try:
        value = getattr(given, name)
    except Exception as error:
        yield f"{name} cannot be read ({type(error).__name__}: {error})"
        return
    if not isinstance(declared, property):
        yield from _unlike(name, value, declared)
        return
    kind = get_type_hints(declared.fget)["return"]
    if getattr(kind, "_is_protocol", False):
        yield from _unlike(name, value, kind.__call__)
    elif not isinstance(value, Integral if kind is int else kind):
        yield f"{name} is of type {type(value).__name__}, not {kind.__name__}"


def _unlike(name: str, value: object, declared: Callable[..., object]) -> Iterator[str]:
    """Yield the reasons why a value cannot be called like the protocol's method, if any."""
    if not callable(value):
        yield f"{name} is of type {type(value).__name__}, and is called"
        return
    wanted = list(inspect.signature(declared).parameters.values())[1:]  # without self
    needed = [each for each in wanted if each.default is each.empty]
    told = inspect.signature(value.forward if isinstance(value, nn.Module) else value)
    try:
        for given in (needed, wanted):
            told.bind(*given)
    except TypeError:
        called = ", ".join(each.name for each in wanted)
        yield f"{name} takes {told}, and is called with ({called})"
