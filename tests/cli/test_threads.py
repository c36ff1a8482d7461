"""How threads wait and how many there are, as the OpenMP runtime itself tells it."""

import os
import re
import subprocess
import sys

import pytest

from cli import threads
from cli.threads import SETTINGS, WAITING, settle_threads

# any command: it is refused before torch is loaded, and what it has set is read afterwards
CODE = """
from cli.main import main
try:
    main(["data", "check"])
except SystemExit:
    pass
import torch
print(torch.get_num_threads())
"""


def told_by_openmp(**given: str) -> dict[str, str]:
    """Return the settings of a process that has begun with a command and has loaded torch."""
    own = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**own, "OMP_DISPLAY_ENV": "verbose", **given},
        capture_output=True,
        text=True,
        check=True,
    )
    if "GOMP_" not in done.stderr:
        pytest.skip("this torch is not built with GNU's OpenMP")
    found = re.findall(r"(?:\[\w+\] )?(\w+) = '(.*)'", done.stderr)
    return {**dict(found), "threads": done.stdout.splitlines()[-1]}


def test_threads_soon_sleep_and_are_as_many_as_before():
    told = told_by_openmp(OMP_NUM_THREADS="1")
    assert told["GOMP_SPINCOUNT"] == WAITING["GOMP_SPINCOUNT"]
    assert told["threads"] == "1"


def test_what_the_user_says_of_waiting_holds():
    assert told_by_openmp(OMP_WAIT_POLICY="passive")["GOMP_SPINCOUNT"] == "0"


def environment(monkeypatch, *, mask: int = 2, quota: int = 2, **given: str) -> dict[str, str]:
    """Return what a command sets beside what is given, on a machine of so many cores."""
    monkeypatch.setattr(threads, "cores", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(mask)), raising=False)
    monkeypatch.setattr(os, "environ", {**given})
    settle_threads()
    return {name: value for name, value in os.environ.items() if name not in given}


def test_of_waiting_nothing_is_added_to_what_the_user_says(monkeypatch):
    assert environment(monkeypatch) == WAITING
    for name in SETTINGS:
        assert environment(monkeypatch, **{name: "1"}) == {}


def test_a_quota_below_the_cores_is_kept_to_unless_the_user_says_else(monkeypatch):
    assert environment(monkeypatch, mask=64, quota=2)["OMP_NUM_THREADS"] == "2"
    assert environment(monkeypatch, mask=64, quota=2, OMP_NUM_THREADS="5") == WAITING


def test_without_a_quota_openmp_counts_and_the_trainer_may_divide(monkeypatch):
    assert "OMP_NUM_THREADS" not in environment(monkeypatch, mask=2, quota=2)
