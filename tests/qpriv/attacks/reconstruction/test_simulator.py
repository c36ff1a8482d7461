"""SDAR's simulator: taught by a server that is only read."""

import pytest
import torch
from torch import Tensor, nn

from qpriv.attacks.observation import Observation, observe
from qpriv.attacks.reconstruction.alignment import Alignment
from qpriv.attacks.reconstruction.fora import FeatureInversion, Training
from qpriv.attacks.reconstruction.simulator import ServerLoss
from qpriv.attacks.token_grid import TokenGrid
from qpriv.pruning.baselines import RandomPruning
from qpriv.pruning.policy import NoPruning
from qpriv.split import Channel, Direction, Kind, Transcript
from tests.qpriv.attacks.reconstruction.test_fora import CUT, PATCH, crossed, drawn, report
from tests.tiny_models import random_model, random_samples


@pytest.mark.parametrize("policy", [NoPruning(), RandomPruning(0.5)], ids=["off", "half"])
def test_loss_on_what_crosses_is_the_victims_own_and_reaches_no_weight(policy) -> None:
    model, samples = random_model(), random_samples(5)
    model.add_lora(rank=4)
    model.eval()
    seen = observe(model, policy, samples, Channel((4,)), cut=4)
    rows = torch.tensor([3, 0, 1])
    grid = seen.tokens(knows_positions=True)[rows]
    tokens = grid.tokens.clone().requires_grad_(True)
    loss = ServerLoss(model, seen, samples)(TokenGrid(tokens, grid.present), rows)

    chosen = [samples[row] for row in rows]
    batch = model.preprocessor(chosen)
    features = model.encode(batch)
    expected = model(batch, features, policy.decide(features, chosen)).loss
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    torch.autograd.backward(loss, inputs=[tokens])
    assert tokens.grad[grid.present].any() and not tokens.grad[~grid.present].any()
    assert all(value.grad is None for value in model.parameters())


def moved(seen: Observation, turn: Tensor) -> Observation:
    """Return what a client sends whose adapter turns and shifts its tokens."""
    transcript = Transcript()
    rows = [row @ turn + 0.7 for row in seen.transcript.rows(CUT)]
    spans = seen.transcript.select(CUT)[0].spans
    transcript.add(CUT, Kind.ACTIVATION, Direction.UP, rows, spans=spans)
    return Observation(transcript, CUT, seen.kept, seen.grid)


class Server(nn.Module):
    """Tells eight classes by the mean token."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(48, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(4 * tokens.mean(dim=1))
        return scores


def test_simulator_beats_the_floor_and_leaves_the_server_alone() -> None:
    auxiliary, private = drawn(200, 0), drawn(200, 1)
    generator = torch.Generator().manual_seed(3)
    turn = torch.linalg.qr(torch.eye(48) + 0.005 * torch.randn(48, 48, generator=generator))[0]
    turn = turn * turn.diagonal().sign()
    public, target = crossed(auxiliary), moved(crossed(private), turn)
    torch.manual_seed(0)
    server = Server()
    labels = server(moved(public, turn).tokens(knows_positions=True).tokens).argmax(dim=1)
    before = [value.clone() for value in server.parameters()]

    def task(grid: TokenGrid, rows: Tensor) -> Tensor:
        return nn.functional.cross_entropy(server(grid.tokens), labels[rows])

    figures = []
    for steps in (0, 150):
        fora = FeatureInversion(
            client="simulator",
            training=Training(steps=0, width=48, depth=1),
            alignment=Alignment(steps=steps, learning_rate=3e-3, batch_size=32),
            patch_size=PATCH,
        )
        fora.fit(public, auxiliary, private=target, task=task)
        figures.append(report(fora, target, private, auxiliary))
    assert figures[1]["psnr"] > figures[0]["psnr"] + 3
    assert figures[1]["psnr"] > figures[1]["floor_mean_image"] + 1
    assert all(torch.equal(a, b) for a, b in zip(before, server.parameters(), strict=True))
    assert all(value.grad is None for value in server.parameters())
    assert "answers" in fora.threat_model.auxiliary and "layers" in fora.threat_model.access


def test_only_a_simulator_has_a_teacher() -> None:
    auxiliary = drawn(8, 0)
    seen = crossed(auxiliary)
    for client, task in (("simulator", None), ("substitute", lambda grid, rows: grid.tokens.sum())):
        with pytest.raises(ValueError, match="learns from the server"):
            FeatureInversion(client=client, patch_size=PATCH).fit(
                seen, auxiliary, private=seen, task=task
            )
