"""Ways for threads to wait, and runs side by side: seconds, CPU seconds, idle and beside busy loops.

    python -m benchmarks.threads fit [--rounds 3]
    python -m benchmarks.threads study [--rounds 3]

``fit`` is one short fit with a probe: as a command sets its threads up, as the OpenMP runtime would
wait by itself, without spinning at all, and with one thread. ``study`` is four such fits as one
study, one at a time and side by side. Ways take turns in every round, since other programs come
and go; medians are printed. The busy loops, one for each core, end with their round. The last
column says whether the figures are bit for bit those of the first way.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from cli.threads import SETTINGS, cores

QPRIV = [sys.executable, "-c", "from cli.main import main; main()"]
SHORT = [
    "--data.num_train=96", "--data.num_memorised=32", "--data.num_eval=48",
    "--data.num_auxiliary=100", "--data.batch_size=16", "--model.policy=NoPruning",
    "--trainer.max_epochs=1", "--trainer.callbacks+=ForaProbe", "--trainer.callbacks.client=supervised", "--trainer.callbacks.steps=20",
    "--trainer.callbacks.max_samples=32", "--trainer.callbacks.auxiliary_samples=64",
    "--run.wandb=off", "--run.tensorboard=false",
]  # fmt: skip
FIT = [*QPRIV, "fit", "--config=tiny/vqa.yaml", "--trainer.default_root_dir={out}", *SHORT]
STUDY = """
name: benchmark
seeds: [0, 1, 2, 3]
stages:
  - name: fit
    config: {config}
    minutes: 1
    overrides: {overrides}
"""

Way = tuple[Sequence[str], dict[str, str]]


def main(what: str, rounds: int) -> None:
    with TemporaryDirectory() as folder:
        ways = fits() if what == "fit" else studies(Path(folder))
        for condition, loops in (("idle", 0), ("beside busy loops", cores())):
            print(f"{condition}, medians of {rounds}", flush=True)
            took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            figures: dict[str, list[str]] = {}
            for number in range(rounds):
                for name, way in ways.items():
                    out = Path(folder) / f"{condition}-{name}-{number}".replace(" ", "-")
                    with busy(loops):
                        took[name].append(timed(way, out))
                    print("   ", name, *(f"{each:.1f}" for each in took[name][-1]), flush=True)
                    figures[name] = [
                        path.read_text() for path in sorted(out.rglob("metrics.jsonl"))
                    ]
            first = next(iter(ways))
            for name in ways:
                seconds, spent = (median(column) for column in zip(*took[name], strict=True))
                same = "the same" if figures[name] == figures[first] else "other last digits"
                print(f"  {name:24} {seconds:7.1f} s {spent:7.1f} CPU s  {same}", flush=True)


def fits() -> dict[str, Way]:
    # 300,000 is what GNU's runtime does where nobody says anything
    ways = {"as commands do": {}, "as OpenMP does": {"GOMP_SPINCOUNT": "300000"},
            "asleep at once": {"OMP_WAIT_POLICY": "passive"}, "one thread": {"OMP_NUM_THREADS": "1"}}  # fmt: skip
    return {name: (FIT, own) for name, own in ways.items()}


def studies(folder: Path) -> dict[str, Way]:
    config = Path(__file__).parents[1] / "cli" / "configs" / "tiny" / "vqa.yaml"
    study = folder / "benchmark.yaml"
    study.write_text(STUDY.format(config=config, overrides=SHORT))
    command = [*QPRIV, "study", f"--config={study}", "--out={out}"]
    alone = [*command, "--jobs=1"]
    return {
        "side by side": (command, {}),
        "one at a time": (alone, {}),
        "one at a time, one thread": (alone, {"OMP_NUM_THREADS": "1"}),
    }


def timed(way: Way, out: Path) -> tuple[float, float]:
    """Return the seconds that a command took, and the CPU seconds of it and its processes."""
    command, own = way
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    inherited.pop("OMP_NUM_THREADS", None)
    started, before = time.monotonic(), os.times()
    done = subprocess.run(
        [word.format(out=out) for word in command],
        env={**inherited, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    seconds, after = time.monotonic() - started, os.times()
    spent = after.children_user + after.children_system
    return seconds, spent - before.children_user - before.children_system


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep so many other processes at work meanwhile."""
    loop = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    started = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["fit", "study"])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    main(given.what, given.rounds)
