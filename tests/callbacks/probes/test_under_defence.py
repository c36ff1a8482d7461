"""Attackers of a defended cut: what they read, and what they train through, is what crosses it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from callbacks import ForaProbe, FshaProbe
from qpriv.attacks.observation import Observation, observe
from qpriv.attacks.reconstruction.fora import FeatureInversion
from qpriv.attacks.reconstruction.hijacking import HijackingServer
from qpriv.datasets.sample import ArrayImage, VQASample
from qpriv.defences import GaussianNoise
from qpriv.split import Channel, Kind, RandomKey, StageContext
from tests.callbacks.victims import TinyData, TinyVictim
from tests.qpriv.defences.test_at_a_cut import PLAIN, defended
from tests.qpriv.paradigms.runs import BATCH, begin
from tests.qpriv.split.test_channel import sent_in_training
from tests.tiny_models import random_samples

CUT, LOUD = 1, 30.0


def coloured(sample: VQASample, number: int) -> VQASample:
    """Return a sample with a picture of four plain quarters, which little training can restore."""
    quarters = np.random.default_rng(number).integers(0, 256, (2, 2, 3), dtype=np.uint8)
    return replace(sample, image=ArrayImage(quarters.repeat(32, 0).repeat(32, 1)))


class ColouredData(TinyData):
    def __init__(self) -> None:
        super().__init__()
        every = [sample for part in self.parts.values() for sample in part]
        painted = {s.key: coloured(s, n) for n, s in enumerate([*every, *self.gallery_samples])}
        self.parts = {n: [painted[s.key] for s in part] for n, part in self.parts.items()}
        self.gallery_samples = [painted[sample.key] for sample in self.gallery_samples]


def victim(std: float) -> TinyVictim:
    own = TinyVictim()
    own.channel = Channel((CUT,), defence=GaussianNoise(std), paradigm="split")
    return own


def psnr(probe: Any, std: float, folder: Path) -> float:
    results = probe.run_once(victim(std), ColouredData(), folder / f"{std}", 0)
    (figure,) = [r for r in results if r.name == f"attack/{probe.metric_prefix}/psnr"]
    assert figure.status == "ok", figure.note
    return float(figure.value)


@dataclass(frozen=True)
class Read:
    """What an inverter was given."""

    public: Observation
    private: Observation


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Read]:
    """Return what every inverter that is trained is given."""
    seen, fit = list[Read](), FeatureInversion.fit

    def kept(
        self: FeatureInversion, public: Observation, *scenes: Any, private: Observation, **more: Any
    ):
        seen.append(Read(public, private))
        return fit(self, public, *scenes, private=private, **more)

    monkeypatch.setattr(FeatureInversion, "fit", kept)
    return seen


def rows(observation: Observation) -> Tensor:
    return torch.cat(observation.transcript.rows(CUT))


@pytest.mark.slow
@pytest.mark.parametrize("client", ["supervised", "substitute"])
def test_an_inverter_trains_on_what_the_noise_lets_through(
    client: str, given: list[Read], tmp_path: Path
) -> None:
    probe = ForaProbe(
        client=client,  # type: ignore[arg-type]
        steps=60,
        alignment_steps=30,
        batch_size=16,
        learning_rate=5e-3,
        on_error="stop",
    )
    quiet, loud = psnr(probe, 0.0, tmp_path), psnr(probe, LOUD, tmp_path)
    assert quiet > loud + 0.5
    clean, noised = given
    noise = [rows(getattr(noised, of)) - rows(getattr(clean, of)) for of in ("public", "private")]
    for own in noise:  # its own scenes cross the same defence as those it watches
        assert float(own.std()) == pytest.approx(LOUD, rel=0.02)
    count = min(len(own) for own in noise)
    assert not torch.equal(noise[0][:count], noise[1][:count])


@pytest.mark.slow
def test_a_hijacker_trains_on_what_the_noise_lets_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossed, read = list[Tensor](), list[Tensor]()
    noised, hijack = GaussianNoise._noised, HijackingServer.hijack

    def sent(self: GaussianNoise, own: Tensor, context: StageContext) -> Tensor:
        out = noised(self, own, context)
        crossed.append(out.detach())
        return out

    def taken(self: HijackingServer, gradient: Tensor, context: StageContext) -> Tensor:
        read.append(torch.cat(self.transcript.rows(CUT)))
        assert torch.equal(read[-1], crossed[-1])
        return hijack(self, gradient, context)

    probe = FshaProbe(
        steps=60,
        batch_size=8,
        max_samples=12,
        auxiliary_samples=48,
        learning_rate=3e-3,
        on_error="stop",
    )
    quiet = psnr(probe, 0.0, tmp_path)
    monkeypatch.setattr(GaussianNoise, "_noised", sent)
    monkeypatch.setattr(HijackingServer, "hijack", taken)
    assert quiet > psnr(probe, LOUD, tmp_path) + 0.5
    assert len(read) == 60


def test_an_attacker_reads_what_the_defended_step_has_sent() -> None:
    paradigm = defended("split", GaussianNoise(0.5))
    run = begin(paradigm, PLAIN)
    samples = random_samples(BATCH)
    seen = observe(
        run.model, run.policy, samples, paradigm.channel(), 4, encode=run.encode, key=RandomKey(5)
    )
    sent = [m for m in sent_in_training(paradigm, run) if m.kind is Kind.ACTIVATION]
    assert all(map(torch.equal, seen.transcript.rows(4), sent[0].rows))
    assert len(sent) == 1 and len(sent[0].rows) == BATCH
