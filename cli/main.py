"""The ``qpriv`` command: looks at the first word only, and imports what that word needs."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from .errors import fail, nearest, told_briefly
from .threads import settle_threads

# help, version and typing mistakes must not cost the seconds that importing torch takes
COMMANDS = {
    "fit": ("cli.train", "train a teacher, a student or a VQA model"),
    "validate": ("cli.train", "measure a checkpoint on the validation split"),
    "test": ("cli.train", "measure a checkpoint on the test split"),
    "predict": ("cli.train", "write a checkpoint's answers, with question ids"),
    "attack": ("cli.train", "run the configured probes once on a checkpoint"),
    "server": ("cli.parties", "serve a run whose clients are processes of their own"),
    "client": ("cli.client", "take part in such a run, with data of one's own"),
    "report": ("cli.commands", "make a report.html of run folders"),
    "study": ("cli.commands", "run a grid of fits over seeds, and report"),
    "data": ("cli.commands", "data check: say what a data folder holds"),
    "plan": ("cli.plan", "forecast parameters, memory, FLOPs and bytes, and say who sees what"),
    "compare": ("cli.compare", "set two runs side by side, figure by figure"),
    "merge": ("cli.merge", "make a run's adapter part of the weights it was trained on"),
    "features": ("cli.features", "show the size of the feature cache, or clear it"),
    "dashboard": ("cli.dashboard", "describe a W&B workspace of your runs, and push it"),
    "documents": ("cli.documents", "documents train, score: what one document model memorised"),
    "prepare": ("cli.prepare", "prepare tiny, reader, canaries: make what studies start from"),
}

SURROUNDINGS = {
    # tokenizers fork with loader workers, and warn about it at every worker otherwise
    "TOKENIZERS_PARALLELISM": "false",
    # nothing is told to anybody: neither what is used, nor what crashed
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_ERROR_REPORTING": "false",
    "FLWR_TELEMETRY_ENABLED": "0",
}
"""What the libraries are told before the first of them is imported, unless the user says else."""

_RUNS = ("fit", "validate", "test", "predict", "attack")


def main(args: Sequence[str] | None = None) -> None:
    """Run one command.

    Args:
        args: What was typed after ``qpriv``; the process's own arguments where None.

    Raises:
        SystemExit: With code 2 for a mistake in what was typed or given, 130 for Ctrl-C.
    """
    words = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    hint = "The same command with --ckpt_path last goes on." if words[:1] == ["fit"] else ""
    with told_briefly(debug, hint):
        try:
            _dispatch(words)
        finally:
            sys.stdout.flush()  # here, where a reader who has left is no error


def _dispatch(words: Sequence[str]) -> None:
    if not words or words[0] in {"-h", "--help", "help"}:
        print(usage())
        return
    command = words[0]
    if command == "--version":
        print(f"qpriv {version('qpriv')}")
        return
    if command not in COMMANDS:
        what = "option" if command.startswith("-") else "command"
        hint = nearest(command, COMMANDS) or f"commands: {', '.join(COMMANDS)}"
        fail(f"unknown {what}: {command}", hint)
    for name, value in SURROUNDINGS.items():
        os.environ.setdefault(name, value)
    settle_threads()
    import_module(COMMANDS[command][0]).run(words)


def usage() -> str:
    """Return the help of the whole program."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: qpriv COMMAND [options]",
            "",
            "Fine-tune vision-language models for VQA and see what an attacker could take.",
            "",
            *lines,
            "",
            "qpriv COMMAND --help tells a command's options; --debug shows tracebacks.",
            f"{', '.join(_RUNS)} take --config FILE.yaml; shipped ones are found by name, such as",
            "  qpriv fit --config tiny/vqa_dtp.yaml",
        ]
    )
