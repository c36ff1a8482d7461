"""A server and its clients as processes of their own end at the weights of ``qpriv fit``."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cli.main import main
from cli.parties import MIB
from qpriv.remote import Snapshots
from qpriv.result import read_results
from qpriv.transport import Identity, Message, TransportError
from qpriv.transport.certificates import make_certificates
from qpriv.transport.grpc_connection import GrpcConnection
from tests.tiny_models import build_random_backbone, random_backbone

ROOT = Path(__file__).parents[2]
EPOCHS = 2


def settings(*more: str) -> list[str]:
    """Return a run on a tiny random model and eleven pictures of noise: three steps an epoch."""
    return [
        "--model=VQAModule",
        f"--model.backbone={random_backbone()}",
        "--model.rank=4",
        "--model.learning_rate=1e-2",
        "--data=tests.tiny_data.Noise",
        "--trainer.accelerator=cpu",
        "--trainer.enable_progress_bar=false",
        *more,
    ]


class Processes:
    """Parties in a folder, each a process of its own; all of them end with the test."""

    def __init__(self, folder: Path, settings: list[str]) -> None:
        self.folder, self.settings = folder, settings
        self.running: list[subprocess.Popen[str]] = []
        self.port = 0

    def start(self, name: str, *words: str) -> subprocess.Popen[str]:
        role, *given = words
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from cli.main import main; main()",
                *self.typed(role, name, given),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=(self.folder / f"{name}.err").open("a"),
            text=True,
        )
        self.running.append(process)
        return process

    def typed(self, role: str, name: str, given: Sequence[str]) -> list[str]:
        """Return the words of a command; the last of two settings holds."""
        certificates = ["--certificates", str(self.folder / "certificates")]
        return [role, *self.settings, *certificates, "--out", str(self.folder / name), *given]

    def serve(self, rounds: int, *words: str, wait: bool = True) -> subprocess.Popen[str]:
        given = ["--listen", f"localhost:{self.port}", "--rounds", str(rounds), *words]
        process = self.start("server", "server", *given)
        if wait:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "listening on port" in line, (self.folder / "server.err").read_text()
            self.port = int(line.rsplit(" ", 1)[1])
        return process

    def join(self, number: int, *words: str) -> subprocess.Popen[str]:
        where = ["--server", f"localhost:{self.port}", "--client", str(number)]
        return self.start(f"client{number}", "client", *where, *words)

    def ended(self, process: subprocess.Popen[str]) -> str:
        """Return what a process has printed, once it has ended well."""
        said, _ = process.communicate(timeout=900)
        logs = {path.name: path.read_text() for path in self.folder.glob("*.err")}
        assert process.returncode == 0, logs
        return said

    def reaches(self, name: str, number: int) -> None:
        """Wait until a party has written down a round."""
        snapshots, deadline = Snapshots(self.folder / name / "rounds"), time.monotonic() + 600
        while max(snapshots.numbers(), default=0) < number:
            assert time.monotonic() < deadline, f"{name} stands at {snapshots.numbers()}"
            time.sleep(0.01)


@pytest.fixture
def parties(tmp_path, monkeypatch):
    made = []
    monkeypatch.chdir(tmp_path)

    def make(*more):
        make_certificates(tmp_path / "certificates", clients=2)
        made.append(Processes(tmp_path, settings(*more)))
        return made[0]

    yield make
    for process in made[0].running:
        process.kill()
        process.wait()


def fit(folder, words):
    """Return the adapters of the last step of a fit in one process, by their folder."""
    quiet = ["--run.wandb=off", "--run.tensorboard=false", "--trainer.limit_val_batches=0"]
    where = [f"--trainer.max_epochs={EPOCHS}", f"--trainer.default_root_dir={folder}"]
    main(["fit", *words, *quiet, *where])
    return adapters(folder / "adapter")


def adapters(folder):
    files = folder.rglob("adapter_model.safetensors")
    return {file.parent.relative_to(folder).as_posix(): load_file(file) for file in files}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.slow
def test_split_learning_over_grpc_is_the_fit_bit_for_bit(parties, tmp_path):
    run = parties("--model.paradigm=SplitLearning", "--model.paradigm.codec=bf16")
    server = run.serve(rounds=6)
    client = run.join(0)
    expected = fit(tmp_path / "fit", run.settings)
    run.ended(client)
    run.ended(server)
    assert same(adapters(tmp_path / "server/adapter")["server"], expected["server"])
    assert same(adapters(tmp_path / "client0/adapter")["client0"], expected["client0"])
    results = {result.name: result for result in read_results(tmp_path / "client0/results.jsonl")}
    assert results["accuracy"].n == 11 and results["accuracy"].paradigm == "split"
    assert results["bytes_up"].value > results["bytes_down"].value > 0  # labels go up
    assert len((tmp_path / "client0/metrics.jsonl").read_text().splitlines()) == 6


@pytest.mark.slow
def test_parties_agree_on_a_defence_and_end_as_the_fit_does(parties, tmp_path):
    noise = ["--model.defence=GaussianNoise", "--model.defence.std=0.3"]
    run = parties("--model.paradigm=UShapedSplit", *noise)
    server = run.serve(rounds=3)
    refused = run.join(0, "--model.defence.std=0.2")
    refused.communicate(timeout=900)
    assert refused.returncode == 2
    said = (tmp_path / "client0.err").read_text()
    assert "defence is noise(0.2), the server's is noise(0.3)" in said
    client = run.join(0, "--secret=0")  # that of the fit; by itself it draws one
    quiet = ["--run.wandb=off", "--run.tensorboard=false", "--trainer.limit_val_batches=0"]
    main(["fit", *run.settings, *quiet, "--trainer.max_epochs=1", "--trainer.default_root_dir=fit"])
    run.ended(client)
    run.ended(server)
    expected = adapters(tmp_path / "fit/adapter")
    assert same(adapters(tmp_path / "server/adapter")["server"], expected["server"])
    assert same(adapters(tmp_path / "client0/adapter")["client0"], expected["client0"])
    results = read_results(tmp_path / "client0/results.jsonl")
    assert {result.defence for result in results} == {"noise(0.3)"}


@pytest.mark.slow
def test_parties_that_are_killed_end_at_the_weights_of_the_fit(parties, tmp_path):
    """Two clients of a U-shaped split; one of them, then the server, is killed as it works."""
    given = ("--model.paradigm=UShapedSplit", "--model.paradigm.num_clients=2")
    run = parties(*given, "--model.paradigm.bucket=16", "--data.batch_size=1")
    server = run.serve(rounds=22)
    clients = [run.join(number, "--shard=true") for number in range(2)]
    run.reaches("client0", 4)
    clients[0].send_signal(signal.SIGKILL)
    clients[0].wait()
    before = Snapshots(tmp_path / "client0/rounds").numbers()[-1]
    clients[0] = run.join(0, "--shard=true")
    run.reaches("client0", before + 3)
    server.send_signal(signal.SIGKILL)
    server.wait()
    done = Snapshots(tmp_path / "server/rounds").numbers()[-1]
    server = run.serve(rounds=22)
    assert Snapshots(tmp_path / "server/rounds").numbers()[-1] >= done
    expected = fit(tmp_path / "fit", run.settings)
    for process in (*clients, server):
        run.ended(process)
    assert same(adapters(tmp_path / "server/adapter")["server"], expected["server"])
    for name in ("client0", "client1"):
        assert same(adapters(tmp_path / name / "adapter")[name], expected[name])
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line)["step"] for line in lines]
        assert steps == sorted(set(steps))  # nothing is told twice
    assert not same(expected["client0"], expected["client1"])


@pytest.mark.slow
def test_federated_parties_that_are_killed_end_at_the_weights_of_the_fit(parties, tmp_path):
    """A client within the second round, then the server within the third."""
    given = ("--model.paradigm=Federated", "--model.paradigm.num_clients=2")
    run = parties(*given, "--model.paradigm.local_steps=2", "--model.dropout=0.1")
    length = (4, "--steps=6")  # three steps an epoch: rounds of two, one, two, one
    server = run.serve(*length)
    clients = [run.join(number, "--shard=true") for number in range(2)]
    run.reaches("server", 1)
    clients[0].send_signal(signal.SIGKILL)
    clients[0].wait()
    clients[0] = run.join(0, "--shard=true")
    run.reaches("server", 2)
    server.send_signal(signal.SIGKILL)
    server.wait()
    assert Snapshots(tmp_path / "server/rounds").numbers()[-1] < 4, "the kill came too late"
    server = run.serve(*length)
    expected = fit(tmp_path / "fit", run.settings)
    for process in (*clients, server):
        run.ended(process)
    for name in ("server", "client0", "client1"):
        assert same(adapters(tmp_path / name / "adapter")["."], expected["."]), name


@pytest.mark.slow
def test_who_does_not_belong_is_told_why_and_the_run_goes_on(parties, tmp_path):
    run = parties("--model.paradigm=SplitLearning")
    server = run.serve(3, "--max_message=1")
    make_certificates(tmp_path / "foreign", clients=1)
    another = build_random_backbone(tmp_path / "another", seed=1)
    refused = [
        run.join(0, "--certificates", str(tmp_path / "foreign"), "--patience=1"),
        run.join(0, "--model.rank=8"),
        run.join(0, f"--model.backbone={another}"),
    ]
    for process in refused:
        process.communicate(timeout=900)
        assert process.returncode == 2
    said = (tmp_path / "client0.err").read_text()
    assert "are both certificates of one authority?" in said
    assert "rank is 8, the server's is 4" in said
    assert re.search(r"model is \w+, the server's is \w+", said)
    own = Identity.read(tmp_path / "certificates", "client0")
    with GrpcConnection(f"localhost:{run.port}", own) as line:
        assert b"malformed" in line.exchange(b"\x80\x04 a pickle, perhaps")
        with pytest.raises(TransportError, match="refused a message by its size"):
            line(Message("forward", {"activation/values": torch.zeros(MIB, 1)}))
    run.ended(run.join(0))
    run.ended(server)


def test_a_server_without_certificates_is_told_what_to_give(parties, capsys):
    run = parties("--model.paradigm=SplitLearning")
    with pytest.raises(SystemExit) as leaving:
        main(["server", *run.settings, "--rounds=1"])
    assert leaving.value.code == 2
    assert "no certificates are given (in --certificates): give a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "Centralized has one party only"),
        (["--model.paradigm=SplitLearning", "--model.paradigm.num_clients=2"], "choose private"),
        (
            ["--model.paradigm=SplitLearning", "--trainer.precision=bf16-mixed"],
            "parties take their steps without a trainer, and so not in bf16-mixed",
        ),
        (["--model.paradigm=UShapedSplit", "--model.paradigm.schedule=together"], "take turns"),
    ],
)
def test_what_cannot_be_divided_is_refused(parties, tmp_path, words, reason, capsys):
    run = parties(*words)
    certificates = ["--certificates", str(tmp_path / "certificates")]
    with pytest.raises(SystemExit) as leaving:
        main(["server", *run.settings, *certificates, "--rounds=1"])
    assert leaving.value.code == 2 and reason in capsys.readouterr().err
