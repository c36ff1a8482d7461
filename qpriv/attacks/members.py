"""What an object must offer to be attacked, read off the protocol that says it."""

import inspect
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, Protocol, get_type_hints

from torch import nn


def members(protocol: type) -> dict[str, Any]:
    """Return the members of a protocol by name, as they stand in its body."""
    bases = [base for base in reversed(protocol.__mro__) if base not in (Protocol, object)]
    return {
        name: value
        for base in bases
        for name, value in vars(base).items()
        if not name.startswith("_")
    }


def missing(given: object, protocol: type) -> list[str]:
    """Return the names of the members that an object does not have, in the protocol's order.

    Nothing is missing that is there and cannot be read now: `faults` says what is wrong with it.
    Instance checks of protocols do not tell these apart, and do not see a module's submodules
    from Python 3.12 on.
    """
    return [name for name in members(protocol) if not _has(given, name)]


def faults(given: object, protocol: type) -> list[str]:
    """Return what is wrong with the members that an object has, a few words for each.

    An attribute must be of the type that the protocol names; what is called must take the
    arguments with which attacks call it.
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
    except Exception:  # whatever is wrong with it, it is there
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
    """Yield why something cannot be called as a method of a protocol is; nothing if it can."""
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
