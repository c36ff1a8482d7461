import pytest

from callbacks import ForaProbe
from qpriv.errors import ConfigError
from tests.callbacks.victims import TinyData, TinyVictim


def probe() -> ForaProbe:
    return ForaProbe(
        client="simulator", steps=2, alignment_steps=2, batch_size=4, audit_isolation=True
    )


def test_a_splits_server_teaches_the_simulator_and_keeps_its_weights(tmp_path) -> None:
    figures = {r.name: r for r in probe().run_once(TinyVictim(), TinyData(), tmp_path, 0)}
    assert not [r.note for r in figures.values() if r.status == "failed"]
    figure = figures["attack/sdar/psnr"]
    assert figure.value is not None and figure.attack["client"] == "simulator"
    assert "answers" in str(figure.attack["auxiliary"]) and not figure.attack["active"]


def test_a_u_shaped_splits_server_has_nothing_to_teach_with(tmp_path) -> None:
    with pytest.raises(ConfigError, match="neither labels nor"):
        probe().run_once(TinyVictim(cuts=(2, 6)), TinyData(), tmp_path, 0)
