"""The share of the strongest attacker's gain that a weaker one recovers, within one run."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from qpriv.attacks.reconstruction.scoring import FACE, IMAGE
from qpriv.attacks.registry import attacks
from qpriv.key import AttackSetting
from qpriv.metrics.reconstruction import recovered_share
from qpriv.result import Result


def recovered_shares(results: Sequence[Result]) -> Iterator[Result]:
    """Yield, for each weaker attacker, the share of the way from its floor to the oracle.

    The oracle is the attack that bounds it (`Attack.bound`), such as the inverter that trains
    through the true client; a hijacker has a client of its own, and may come to more than 1. The
    share is (PSNR - floor) / (oracle's PSNR - floor), at one epoch, cut and knowledge of
    positions; of several oracles the one that sees most is the bound. It is left out where no
    oracle beats the floor.

    Args:
        results: Results of one run.
    """
    known = [result for result in results if result.value is not None]
    by_spot = {result.spot: result for result in known}
    for attack in [attack for attack in attacks() if attack.bound]:
        for own in [own for own in attack.quantities if own.name in (FACE.name, IMAGE.name)]:
            oracles = [r for r in known if r.name == f"attack/{attack.bound}/{own.name}"]
            for result in [r for r in known if r.name == attack.figure(own.name)]:
                same = [_value(o) for o in oracles if _scene(o) == _scene(result)]
                floor = by_spot.get(replace(result, name=attack.figure(own.baseline)).spot)
                if same and floor and max(same) > _value(floor):
                    yield _share(result, _value(floor), max(same))


def _share(result: Result, floor: float, oracle: float) -> Result:
    name = result.name.replace("psnr", "recovered_share")
    value = recovered_share(_value(result), floor, oracle)
    note = "(PSNR - floor) / (PSNR through the true client - floor)"
    return replace(result, name=name, value=value, unit="", ci=None, note=note)


def _scene(result: Result) -> tuple[object, ...]:
    """Return what two attackers must have in common: all but who they are and what they spend."""
    key, seed, epoch = result.spot
    shared = tuple(result.attack.get(name) for name in ("cut", "knows_positions"))
    scored = tuple(result.setting.get(name) for name in ("max_samples", "patch_size"))
    return replace(key, name="", setting=AttackSetting()), seed, epoch, shared, scored


def _value(result: Result) -> float:
    return float(result.value or 0.0)
