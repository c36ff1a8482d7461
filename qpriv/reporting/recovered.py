"""How much of what the strongest attacker sees a weaker one recovers, from a run's own figures."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from qpriv.metrics.reconstruction import recovered_share
from qpriv.result import Result

ORACLE = "fora"
"""The inverter that trains through the true client: the upper bound."""
HIJACKERS = ("fsha", "fsha_convolution", "fsha_control")
WEAKER = ("fora_substitute", "sdar", *HIJACKERS)
"""Who does not hold that client. A hijacker has a client of its own, and may come to more than 1."""
_FLOORS = {"psnr": "floor_mean_image", "psnr_sensitive": "floor_mean_face"}
_SAME = ("cut", "positions")


def recovered_shares(results: Sequence[Result]) -> Iterator[Result]:
    """Yield, for each weaker attacker, the share of the way from its floor to the oracle.

    The share is (PSNR - floor) / (oracle's PSNR - floor), at one epoch, cut and knowledge of
    positions; it is left out where the oracle itself does not beat the floor.

    Args:
        results: Results of one run.
    """
    found = {_key(result): result for result in results if result.value is not None}
    for attack in WEAKER:
        for measure, floor_name in _FLOORS.items():
            for result in [r for r in found.values() if r.name == f"attack/{attack}/{measure}"]:
                oracle = found.get(_key(replace(result, name=f"attack/{ORACLE}/{measure}")))
                floor = found.get(_key(replace(result, name=f"attack/{attack}/{floor_name}")))
                if oracle and floor and _value(oracle) > _value(floor):
                    yield _share(result, floor, oracle)


def _share(result: Result, floor: Result, oracle: Result) -> Result:
    name = result.name.replace("psnr", "recovered_share")
    value = recovered_share(_value(result), _value(floor), _value(oracle))
    note = "(PSNR - floor) / (PSNR through the true client - floor)"
    return replace(result, name=name, value=value, unit="", ci=None, note=note)


def _key(result: Result) -> tuple[object, ...]:
    same = tuple(result.attack.get(name) for name in _SAME)
    return result.name, result.epoch, result.dataset, result.policy, result.seed, same


def _value(result: Result) -> float:
    return float(result.value or 0.0)
