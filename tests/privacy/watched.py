"""Runs ``qpriv`` where no socket opens, on a machine whose name, user and tokens are planted."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.data import pictures

HOST, USER = "planted-host-7f3a", "planted-user-9c1e"
TOKENS = {
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "HF_TOKEN": "hf_plantedplantedplanted",
    "ON_THE_COMMAND_LINE": "HUNTER2-planted",
}
ATTEMPTS = "attempts.txt"
OWN = (("192.0.2.1", 443), "trap.invalid")
"""What the trap itself tries to reach, to show that it works."""

# imported by the interpreter itself before anything else; the last lines show that the trap works
_TRAP = f"""
import os, platform, socket

def refuse(what):
    with open(os.environ["ATTEMPTS"], "a") as file:
        file.write(what + "\\n")
    raise OSError("there is no network: " + what)

def guarded(method):
    def call(self, *given):
        local = self.family == socket.AF_UNIX
        return method(self, *given) if local else refuse(f"{{method.__name__}} {{given[-1]}}")
    return call

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr"):
    setattr(socket, name, lambda *given, **_: refuse(f"lookup {{given[0]}}"))
socket.gethostname = platform.node = lambda: {HOST!r}
for own in (socket.socket().connect, {OWN[0]!r}), (socket.getaddrinfo, {OWN[1]!r}):
    try:
        own[0](own[1])
    except OSError:
        pass
"""


def qpriv(folder: Path, *commands: list[str]) -> None:
    """Run commands in one process, in ``folder``, its home below it; fail where one fails."""
    trap = folder / "trap"
    trap.mkdir(parents=True, exist_ok=True)
    (trap / "sitecustomize.py").write_text(_TRAP)
    script = f"from cli.main import main\nfor words in {list(commands)!r}:\n    main(words)\n"
    command = [sys.executable, "-c", script, "--token", TOKENS["ON_THE_COMMAND_LINE"]]
    done = subprocess.run(
        [*_nowhere(), *command],
        cwd=folder,
        env=_surroundings(folder, trap),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def attempts(folder: Path) -> list[str]:
    """Return what was tried to reach, beside what each process's trap tried itself."""
    tried = (folder / ATTEMPTS).read_text().splitlines()
    own = [f"connect {OWN[0]}", f"lookup {OWN[1]}"]
    assert set(own) <= set(tried), "the trap does not work"
    return [line for line in tried if line not in own]


def _nowhere() -> list[str]:
    """Return what puts a command on a machine without any network, where the system can do it."""
    unshare = shutil.which("unshare")
    alone = [unshare or "", "--map-root-user", "--net", "--uts"]
    ways = subprocess.run([*alone, "true"], check=False, capture_output=True) if unshare else None
    if ways is None or ways.returncode:
        return []  # the trap still holds for all that is Python
    return [*alone, "sh", "-c", f'hostname {HOST} && exec "$@"', "sh"]


def _surroundings(folder: Path, trap: Path) -> dict[str, str]:
    home = folder / "home" / USER
    home.mkdir(parents=True, exist_ok=True)
    # the trap names the home's owner in every path; WANDB_MODE asks for what must not happen
    own = {"HOME": str(home), "USER": USER, "LOGNAME": USER, "WANDB_MODE": "online"}
    paths = {"PYTHONPATH": str(trap), "ATTEMPTS": str(folder / ATTEMPTS)}
    return {**os.environ, **TOKENS, **own, **paths}


QUESTION, ANSWER, PICTURE = "wqvorin", "mqzalgia", "xmlab-zqx"
"""Words that stand in every question, answer and picture's name of `write_patients` alone."""


def write_patients(root: Path, train: int = 40) -> Path:
    """Write a release in SLAKE's layout, about patients whose every word can be searched for."""
    number = 0
    for split, count in (("train", train), ("validate", 4), ("test", 4)):
        rows = []
        for number in range(number, number + count):
            name = f"{PICTURE}{number}/source.jpg"
            pictures.save(root / "imgs" / name, number)
            rows += [_row(number, name, turn) for turn in range(2)]
        number += 1
        (root / f"{split}.json").write_text(json.dumps(rows))
    return root


def _row(number: int, name: str, turn: int) -> dict[str, object]:
    about = {"location": "Lung", "modality": "CT", "content_type": "Organ", "base_type": "vqa"}
    return about | {
        "img_id": number,
        "img_name": name,
        "question": f"what ails {QUESTION}{number}x{turn}",
        "answer": f"{ANSWER}{number}x{turn}",
        "answer_type": "OPEN",
        "q_lang": "en",
        "triple": ["vhead", "_", "_"],
        "qid": 2 * number + turn,
    }
