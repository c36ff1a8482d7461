"""The probe on a policy whose weak spot is known: one word lets every patch cross."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from callbacks import SensitivityProbe, SteeringProbe
from callbacks.probes.steering import Steered
from datamodules import FaceScenes
from qpriv.attacks.victim import own_questions
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.models.features import VisualFeatures
from qpriv.pruning import PolicyLabel, PruningDecision, PruningPolicy
from qpriv.result import Result

from ..victims import TinyData, TinyVictim

SMALL = {"auxiliary_samples": 2, "library": 300, "steps": 1, "edits": 2, "on_error": "stop"}


class Weak(PruningPolicy):
    """Keeps the upper half of the picture; all of it where the question reads as one does.

    Args:
        vector: The question's vector.
    """

    def __init__(self, vector: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("vector", vector)

    @property
    def name(self) -> PolicyLabel:
        return PolicyLabel("weak")

    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        count = features.patches.shape[1]
        falls = (features.question - self.vector).abs().amax(dim=1) < 1e-4
        kept = tuple(torch.arange(count if fallen else count // 4) for fallen in falls)
        return PruningDecision(kept, count, torch.zeros(len(samples)))


@pytest.fixture(scope="module")
def victim() -> TinyVictim:
    module = TinyVictim()
    # a question of the library that no sample asks
    asked = replace(TinyData().targets()[0], question="is there a face ?")
    module.policy = Weak(module.model.encode(module.preprocessor([asked])).question[0])
    return module


def test_the_probe_finds_the_question_that_lets_all_cross(
    victim: TinyVictim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, steer, data = list[Steered](), SteeringProbe.steer, TinyData()
    monkeypatch.setattr(
        SteeringProbe, "steer", lambda self, visit: held.append(steer(self, visit)) or held[-1]
    )
    probe = SteeringProbe(max_samples=4, audit_isolation=True, **SMALL)
    found = figures(probe, victim, tmp_path)
    (plain,) = SensitivityProbe(max_samples=4).run_once(victim, data, tmp_path, 0)[1:2]
    assert found["own_sensitive_tokens_kept"].value == pytest.approx(plain.value)
    for asked in ("plain", "worst", "adversarial"):
        assert found[f"{asked}_sensitive_tokens_kept"].value == 1.0
        touched = found[f"{asked}_faces_touched"]
        assert touched.value == 1.0 and touched.ci is not None and touched.ci[0] < 1.0
        assert found[f"{asked}_kept_tokens"].value == victim.model.num_patches
    assert found["worst_gain"].value == pytest.approx(1 - plain.value)
    assert found["worst_activation_bytes_up"].value > found["own_activation_bytes_up"].value
    assert all(result.n == 4 and result.attack["active"] for result in found.values())
    assert all(result.ci or "all values are equal" in result.note for result in found.values())

    # what was found is handed on to whoever reads what is in it, and named on request alone
    (steered,) = held
    assert steered.found.plain == "is there a face ?"
    assert steered.crossed["plain"].questions == (("is there a face ?",),) * 4
    assert steered.crossed["plain"].kept.all()
    assert "found" not in found["worst_gain"].attack
    monkeypatch.setattr(SteeringProbe, "steer", lambda self, visit: steered)
    named = SteeringProbe(max_samples=4, log_private=True, **SMALL)
    assert "is there a face ?" in figures(named, victim, tmp_path)["worst_gain"].attack["found"]


def figures(probe: SteeringProbe, victim: TinyVictim, folder: Path) -> dict[str, Result]:
    results = probe.run_once(victim, TinyData(), folder, 0)
    return {result.name.removeprefix("attack/steering/"): result for result in results}


def test_all_questions_about_an_image_are_known_where_the_data_lists_them() -> None:
    data = FaceScenes(num_targets=4)
    held = own_questions(data, data.targets())
    assert [own[0].image_key for own in held] == [s.image_key for s in data.targets()]
    assert all(5 <= len({one.question for one in own}) <= 7 for own in held)
    noise = TinyData()
    assert own_questions(noise, noise.targets()[:2]) == [[one] for one in noise.targets()[:2]]


@pytest.mark.parametrize("given", [{"library": 299}, {"restarts": 3}, {"questions": 0}])
def test_too_little_is_refused(given) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        SteeringProbe(**given)
