"""In which precision something is computed: the type of weights, and what autocast makes of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def autocast_dtype(device: torch.device | str) -> torch.dtype | None:
    """Return in which type autocast computes products on a device now; None where it is off.

    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     autocast_dtype("cpu")
    torch.bfloat16
    """
    kind = torch.device(device).type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute every product in the type of its factors, and make new tensors float32.

    For what an attacker trains or solves itself, whatever precision its victim trains in.
    Also a decorator.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def new_tensors(dtype: torch.dtype) -> Iterator[None]:
    """Give new tensors a type where none is named; weights that are drawn then are the same
    under every precision of a trainer. Also a decorator.
    """  # noqa: D205
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def widened(tensor: Tensor) -> Tensor:
    """Return a tensor in float32 where its type is narrower, as sums over many numbers need.

    >>> widened(torch.zeros(1, dtype=torch.float16)).dtype, widened(torch.zeros(1).double()).dtype
    (torch.float32, torch.float64)
    """
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def computed_in(weight: Tensor, stored: torch.dtype) -> str:
    """Return what tells results of a precision from those of others, in the name of a folder.

    Args:
        weight: A weight of what computes them.
        stored: Type of its weights as they were loaded.

    Returns:
        Nothing where it computes in that type.

    >>> computed_in(torch.zeros(1).double(), torch.float32)
    '-float64'
    """
    cast = autocast_dtype(weight.device)
    mark = "" if weight.dtype == stored else f"-{_name(weight.dtype)}"
    return mark if cast is None else f"{mark}-autocast-{_name(cast)}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
