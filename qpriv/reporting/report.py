"""`write_report`: one HTML file that opens anywhere, and the merged ``results.jsonl``."""

import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .claims import RULE, Claim, adjusted_claims, evaluate_claims, would_decide
from .evidence import Evidence
from .figures import pictures_by_dataset
from .gallery import galleries
from .quantities import answers, headlines
from .run_folder import Run, find_runs, read_run
from .summary import Card, cards, describe_runs, findings, troubles
from .tables import (
    AttackTables,
    Table,
    attack_tables,
    document_tables,
    other_table,
    paradigm_table,
    policy_table,
    question_type_table,
    sweep_table,
)

_PACKAGES = ("qpriv", "torch", "lightning", "transformers", "peft", "timm", "numpy")
_LOCAL_PATH = re.compile(r"(?<![\w.])(?:/[^\s/'\",:\]]+)+/")


@dataclass(frozen=True)
class DatasetReport:
    """What the page says about one data set."""

    name: str
    tables: tuple[Table, ...]
    documents: tuple[Table, ...]
    attacks: tuple[AttackTables, ...]

    @property
    def all_tables(self) -> tuple[Table, ...]:
        """Return every table, those of the attacks last."""
        of_attacks = (t for each in self.attacks for t in (each.main, each.more) if t)
        return (*self.tables, *self.documents, *of_attacks)


def write_report(run_folders: Iterable[Path], out: Path, *, redact: bool = False) -> Path:
    """Write ``report.html`` and ``results.jsonl`` of some runs into a folder.

    Args:
        run_folders: Run folders, or folders (such as a study's) that hold run folders.
        out: Folder to write to; made if it is missing.
        redact: For publication: withhold every private picture with its caption, and shorten
            local paths in the settings.

    Returns:
        The path of the page: one file without any outside reference.

    Raises:
        DataError: If a run folder is missing or a complete line in it is broken.
    """
    runs = [read_run(folder) for folder in find_runs(run_folders)]
    page = render(runs, redact=redact)
    out.mkdir(parents=True, exist_ok=True)
    results = (msgspec.json.encode(result) + b"\n" for run in runs for result in run.results)
    _replace(out / "results.jsonl", b"".join(results))
    return _replace(out / "report.html", page.encode())


def write_page(run_folder: Path, note: str = "") -> Path:
    """Write ``report.html`` of one run into its own folder, whose results stay as they are.

    Args:
        run_folder: The run folder.
        note: What is said at the top, such as that training goes on.

    Raises:
        DataError: If the folder is missing or a complete line in it is broken.
    """
    page = render([read_run(run_folder)], note=note)
    return _replace(run_folder / "report.html", page.encode())


def render(runs: Sequence[Run], *, redact: bool = False, note: str = "") -> str:
    """Return the page as HTML text."""
    evidence = Evidence.of(runs)
    by_dataset = {name: evidence.within(name) for name in evidence.datasets}
    answered = [each for each in by_dataset.values() if _is_told_of_a_policy(each)]
    claims = claims_of(runs, answered)
    pictures = pictures_by_dataset(
        by_dataset or {"": evidence},
        [curve for run in runs for curve in run.curves],
        [each for run in runs for each in run.histograms],
    )
    datasets = [_dataset(name, each) for name, each in by_dataset.items()]
    tables = [table for report in datasets for table in report.all_tables]
    environment = Environment(
        loader=PackageLoader("qpriv.reporting"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    style = (
        environment.loader.get_source(environment, "report.css")[0] if environment.loader else ""
    )
    return environment.get_template("report.html.j2").render(
        style=Markup(style),
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        note=note,
        introduction=describe_runs(runs, evidence),
        findings=[*_findings(by_dataset), *findings(Evidence([]), claims)],
        cards=[card for each in by_dataset.items() for card in _cards(*each, len(by_dataset) > 1)],
        troubles=troubles(runs),
        datasets=datasets,
        others=other_table(evidence, tables),
        claims=claims,
        verdicts=Counter(claim.verdict for claim in claims),
        rule=RULE,
        would_decide=would_decide,
        pictures=[(each, Markup(each.svg)) for each in pictures],
        galleries=galleries(runs, redact=redact),
        redacted=redact,
        runs=[(run, _shortened(run.config) if redact else run.config) for run in runs],
        versions=_versions(),
    )


def claims_of(runs: Sequence[Run], evidences: Iterable[Evidence]) -> list[Claim]:
    """Return the claims on each data set, adjusted within the families that the study declares."""
    families = {name: named for run in runs for name, named in run.claim_families.items()}
    return adjusted_claims([c for each in evidences for c in evaluate_claims(each)], families)


def undecided(run_folders: Iterable[Path]) -> list[str]:
    """Return a line for each undecided claim of some runs: what would decide it.

    Raises:
        DataError: If a run folder is missing or a complete line in it is broken.
    """
    runs = [read_run(folder) for folder in find_runs(run_folders)]
    evidence = Evidence.of(runs)
    answered = filter(_is_told_of_a_policy, map(evidence.within, evidence.datasets))
    told = [(claim, would_decide(claim)) for claim in claims_of(runs, answered)]
    return [f"Undecided: {claim.statement} {advice}" for claim, advice in told if advice]


def _findings(by_dataset: Mapping[str, Evidence]) -> Iterator[str]:
    """Yield what the figures of each data set mean; of several it is named."""
    for name, evidence in by_dataset.items():
        place = f"{name or 'unnamed data'}: " if len(by_dataset) > 1 else ""
        yield from (f"{place}{sentence}" for sentence in findings(evidence, []))


def _cards(name: str, evidence: Evidence, several: bool) -> list[Card]:
    place = f" · {name or 'unnamed data'}" if several else ""
    return [replace(card, title=f"{card.title}{place}") for card in cards(evidence)]


def _is_told_of_a_policy(evidence: Evidence) -> bool:
    """Return whether claims can be made: a model answered, or was attacked, or pruning measured."""
    names = {figure.name for figure in evidence.figures}
    spoken = {name for own in headlines() for name in answers(own)}
    return bool(names & spoken)


def _dataset(name: str, evidence: Evidence) -> DatasetReport:
    makers = (policy_table, paradigm_table, sweep_table, question_type_table)
    present = tuple(table for make in makers if (table := make(evidence, name)))
    documents = tuple(document_tables(evidence, name))
    return DatasetReport(name, present, documents, tuple(attack_tables(evidence, name)))


def _versions() -> dict[str, str]:
    """Return the versions in use, without importing a package."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _shortened(config: str) -> str:
    """Replace the folders of absolute paths, which tell user and host names."""
    return _LOCAL_PATH.sub("…/", config)


def _replace(path: Path, content: bytes) -> Path:
    """Write beside the target and move, so that a reader never sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(content)
    return beside.replace(path)
