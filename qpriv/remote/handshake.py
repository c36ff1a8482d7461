"""The settings that parties must share, compared before the first tensor crosses."""

from collections.abc import Mapping
from dataclasses import fields

from qpriv.paradigms.base import Paradigm
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.transport import TransportError

_OWN = {"batch_size", "micro_batch_size", "epochs"}
"""What each party may choose for itself: its batches, and how often it reads its data."""


def terms_of(model: str, paradigm: Paradigm, recipe: LoraRecipe, seed: int) -> dict[str, str]:
    """Return the settings that all parties of a run must share, as text.

    Args:
        model: Digest of the frozen weights.
        paradigm: Who owns which layers, already placed in the model's depth.
        recipe: How adapters are trained.
        seed: Seed of the run, from which all adapters start.
    """
    terms: dict[str, object] = {
        "model": model,
        "paradigm": paradigm.label,
        "clients": paradigm.num_clients,
        "seed": seed,
    }
    terms |= {f.name: getattr(recipe, f.name) for f in fields(recipe) if f.name not in _OWN}
    terms |= paradigm.terms()
    return {name: str(value) for name, value in terms.items()}


def check_terms(own: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Check a client's terms against the server's.

    Raises:
        TransportError: If they differ; the message names the first different term and both values.
    """
    for name in sorted(own.keys() | given.keys()):
        if own.get(name) != given.get(name):
            raise TransportError(
                f"{name} is {given.get(name)}, the server's is {own.get(name)}",
                remedy="start both parties from one configuration and the same base weights",
            )
