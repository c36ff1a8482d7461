"""The share of the oracle's gain that a weaker attacker recovers."""

import pytest

from qpriv.reporting.recovered import recovered_shares
from qpriv.result import Result


def figure(name, value, epoch=1, **attack):
    return Result(
        name=f"attack/{name}", value=value, n=9, unit="dB", ci=(0.0, 1.0), seed=0, epoch=epoch,
        attack={"cut": 4, "knows_positions": True, **attack},
    )  # fmt: skip


FLOORS = [
    figure(f"{attack}/floor_mean_face", 14.0)
    for attack in ("supervised_inversion", "fora", "sdar", "fsha")
]


def test_shares_lie_between_the_floor_and_the_true_client():
    rows = [
        *FLOORS,
        figure("supervised_inversion/psnr_sensitive", 22.0),
        figure("fora/psnr_sensitive", 18.0),
        figure("sdar/psnr_sensitive", 13.0),
        figure("fsha/psnr_sensitive", 24.0),
    ]
    shares = {share.name: share for share in recovered_shares(rows)}
    weaker = shares["attack/fora/recovered_share_sensitive"]
    assert weaker.value == 0.5 and weaker.ci is None and weaker.unit == ""
    assert weaker.attack["cut"] == 4
    assert shares["attack/sdar/recovered_share_sensitive"].value == pytest.approx(-1 / 8)
    # a hijacked client may be read better than the true one
    assert shares["attack/fsha/recovered_share_sensitive"].value == pytest.approx(10 / 8)


@pytest.mark.parametrize(
    "oracle",
    [
        figure("supervised_inversion/psnr_sensitive", 22.0, epoch=0),
        figure("supervised_inversion/psnr_sensitive", 22.0, cut=2),
        figure("supervised_inversion/psnr_sensitive", 13.0),
        figure("supervised_inversion/psnr_sensitive", None),
    ],
    ids=["other epoch", "other cut", "below the floor", "failed"],
)
def test_without_an_oracle_above_the_floor_there_is_no_share(oracle):
    rows = [*FLOORS, oracle, figure("fora/psnr_sensitive", 18.0)]
    assert not list(recovered_shares(rows))
