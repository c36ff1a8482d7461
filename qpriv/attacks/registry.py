"""`attacks`: every attack that is declared in a module of this package."""

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from qpriv.declaration import Attack


@cache
def attacks() -> tuple[Attack, ...]:
    """Return the attacks: what each module of this package names as its ``ATTACKS``.

    So an attack is known to reports, dashboards and the documentation by being here.
    """
    modules = walk_packages([str(Path(__file__).parent)], f"{__package__}.")
    found = (import_module(module.name) for module in modules if module.name != __name__)
    return tuple(attack for module in found for attack in getattr(module, "ATTACKS", ()))
