"""How a command ends: a table of what was measured, and where everything lies."""

import shlex
from pathlib import Path

PREDICTIONS = ("predictions.jsonl", "submission.json")


def conclusion(folder: Path, *, answers: bool = True) -> str:
    """Return the figures of a run as a table, and the paths of its report and predictions.

    Where the page was not written during the run, or nothing was predicted, it is the command
    that does it.

    Args:
        folder: The run folder.
        answers: Whether the model answers questions, so that there can be predictions.
    """
    # costs the start of every command a second
    from qpriv.reporting.evidence import Evidence
    from qpriv.reporting.run_folder import read_run
    from qpriv.reporting.text import format_evidence

    run, page = read_run(folder), folder / "report.html"
    table = format_evidence(Evidence.of([run])) if run.results else "No figure was measured."
    report = page if page.is_file() else shlex.join(["qpriv", "report", str(folder)])
    told = [table, "", f"report: {report}"]
    best = folder / "checkpoints" / "best.ckpt"
    if answers and (found := written(folder)):
        told.append(found)
    elif answers and best.is_file():
        asked = ["--config", f"{folder / 'config.yaml'}", "--ckpt_path", f"{best}"]
        place = ["--trainer.default_root_dir", f"{folder}-predictions"]
        told.append(f"predictions: {shlex.join(['qpriv', 'predict', *asked, *place])}")
    return "\n".join(told)


def written(folder: Path) -> str:
    """Return a line for each file of predictions in a run folder; empty where there is none."""
    paths = [folder / name for name in PREDICTIONS if (folder / name).is_file()]
    return "\n".join(f"predictions: {path}" for path in paths)
