"""``qpriv report | study | data check``: plain functions behind plain arguments."""

import json
from collections.abc import Sequence
from pathlib import Path

from .errors import command_parser


def run(words: Sequence[str]) -> None:
    """Run a command that needs no trainer of its own.

    Args:
        words: The command and its arguments.
    """
    commands = {"report": report, "study": study, "data": data}
    commands[words[0]](words[1:])


def report(words: Sequence[str]) -> None:
    """Write ``report.html`` and ``results.jsonl`` of some run folders."""
    parser = command_parser("report", "Make a self-contained page of run folders.")
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, or folders of such")
    parser.add_argument("--out", type=Path, default=Path("runs/report"), help="where to write")
    parser.add_argument("--redact", action="store_true", help="withhold private pictures and paths")
    given = parser.parse_args(words)
    from qpriv.reporting.report import undecided, write_report

    written = write_report(given.runs, given.out, redact=given.redact)
    print(*undecided(given.runs), f"report: {written}", sep="\n")


def study(words: Sequence[str]) -> None:
    """Run what is not yet done of a study, and report."""
    parser = command_parser(
        "study", "Run a grid of fits over seeds; stopped, it goes on where it was."
    )
    parser.add_argument("--config", type=Path, required=True, help="the study's YAML")
    parser.add_argument("--out", type=Path, default=None, help="where its runs lie")
    parser.add_argument(
        "--jobs", type=int, default=None, help="runs at a time; default: the study's"
    )
    parser.add_argument(
        "--fast", action="store_true", help="only show that all runs: a step or two of each stage"
    )
    given = parser.parse_args(words)
    from . import train
    from .study import run_study

    config = Path(train.shipped(str(given.config)))
    out = given.out or Path("runs") / f"{config.stem}{'-fast' if given.fast else ''}"
    short = train.CONFIGS / "study" / "probes" / "tiny.yaml" if given.fast else None
    outcome = run_study(config, out, run_trial, jobs=given.jobs, dry_run_probes=short)
    if outcome.report is not None:
        print(f"report: {outcome.report}")
    if outcome.exit_code:
        raise SystemExit(outcome.exit_code)


def run_trial(words: Sequence[str]) -> None:
    """Run one command of a study in this process."""
    from . import documents, train

    (documents if words[0] == "documents" else train).run(words)


def data(words: Sequence[str]) -> None:
    """Say what a data folder holds."""
    parser = command_parser("data", "Look at a data folder before it is used.")
    actions = parser.add_subparsers(dest="action", required=True)
    checking = actions.add_parser("check", help="read every split and every image")
    checking.add_argument("--dataset", required=True, help="name, such as SLAKE or CelebA")
    checking.add_argument("--root", required=True, type=Path, help="its folder or archive")
    checking.add_argument("--json", action="store_true", help="print the check as JSON")
    checking.add_argument("--skip-images", action="store_true", help="do not decode the images")
    checking.add_argument(
        "--split", nargs="+", default=(), help="look at these splits alone; all must be there"
    )
    checking.add_argument(
        "--subset", choices=["balanced", "all"], default="balanced", help="which questions of GQA"
    )
    checking.add_argument("--group-field", help="field that names a row's patient or other group")
    checking.add_argument("--on-leak", choices=["warn", "error"], default="warn")
    given = parser.parse_args(words)
    from qpriv.datasets.check import check
    from qpriv.datasets.leaks import report_leaks

    found = check(
        given.dataset,
        given.root,
        decode_images=not given.skip_images,
        group_field=given.group_field,
        splits=given.split,
        subset=given.subset,
    )
    print(json.dumps(found.as_dict(), ensure_ascii=False) if given.json else found)
    if given.on_leak == "error":
        report_leaks(found.leaks, given.dataset, "error")
    if not found.is_sound:
        raise SystemExit(2)
