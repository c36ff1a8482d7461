"""A whole run without network, and what its folder tells whoever it is given to."""

import zipfile
from pathlib import Path

import pytest
import yaml

from datamodules import FakeDocuments
from qpriv.result import read_results

from . import watched

PROBES = {
    "SensitivityProbe": {"max_samples": 4},
    "ForaProbe": {"client": "supervised", "max_samples": 4, "auxiliary_samples": 4, "steps": 2},
    "MembershipProbe": {"max_samples": 12, "shadows": 2},
    "GradientInversionProbe": {
        "max_samples": 2,
        "auxiliary_samples": 4,
        "surfaces": ["cut"],
        "candidates": 2,
        "stand_ins": 2,
    },
    "SideChannelProbe": {},
    "AttributeProbe": {},
    "IrrelevantQuestionProbe": {},
    "SteeringProbe": {"max_samples": 4, "auxiliary_samples": 4, "steps": 1, "edits": 1},
}
# settings as they were typed, and where PEFT looks for the base model; never uploaded
TELLS_PATHS = {"config.yaml", "adapter/adapter_config.json", "adapter/README.md"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder in a home of ours, with a run about patients in it, and its report."""
    folder = tmp_path_factory.mktemp("whole")
    patients = watched.write_patients(folder / "home" / watched.USER / "patients")
    listed = [{"class_path": name, "init_args": given} for name, given in PROBES.items()]
    (folder / "probes.yaml").write_text(yaml.safe_dump({"trainer": {"callbacks": listed}}))
    fit = ["fit", "--config=tiny/vqa_off.yaml", "--config=probes.yaml", "--data=SLAKE"]
    fit += [f"--data.root={patients}", "--data.victim_share=0.15", "--model.rank=4"]
    fit += ["--trainer.max_epochs=1", f"--trainer.default_root_dir={run_of(folder)}"]
    watched.qpriv(folder, fit, ["report", str(run_of(folder)), "--out=shared", "--redact"])
    return folder


def run_of(folder: Path) -> Path:
    return folder / "home" / watched.USER / "runs" / "one"


def contents(folder: Path) -> dict[str, bytes]:
    """Return name and bytes of every file, the members of archives unpacked."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = str(path.readlink()).encode()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                found |= {f"{name}!{m}": archive.read(m) for m in archive.namelist()}
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def tellers(folder: Path, secret: str) -> set[str]:
    """Return the files that hold a secret, as any usual encoding has it, or are named by it."""
    forms = {secret.encode(code) for code in ("utf-8", "utf-16-le", "utf-32-le")}
    return {
        name
        for name, content in contents(folder).items()
        if secret in name or any(form in content for form in forms)
    }


def test_every_probe_measured_and_nobody_was_called(place):
    results = read_results(run_of(place) / "results.jsonl")
    assert [result.note for result in results if result.status == "failed"] == []
    attacks = {result.name.split("/")[1] for result in results if result.name.count("/") > 1}
    assert {
        "supervised_inversion",
        "membership",
        "gradient",
        "attributes",
        "side_channel",
    } <= attacks
    assert "<h2" in (place / "shared" / "report.html").read_text()
    assert watched.attempts(place) == []


def test_all_dashboards_were_written_and_wandb_stayed_offline(place):
    files = contents(run_of(place))
    metrics = files["csv/metrics.csv"].decode()
    assert "attack/supervised_inversion/psnr" in metrics
    (events,) = (name for name in files if "tfevents" in name)
    assert b"attack/supervised_inversion/psnr" in files[events]
    (record,) = (name for name in files if name.endswith(".wandb"))
    assert record.startswith("wandb/offline-run-"), "WANDB_MODE=online was set"
    assert b"attack/supervised_inversion/psnr" in files[record]


@pytest.mark.parametrize("secret", [watched.HOST, *watched.TOKENS.values()])
def test_machine_and_tokens_are_told_nowhere(place, secret):
    assert tellers(run_of(place), secret) == set()
    assert tellers(place / "shared", secret) == set()


def test_user_and_home_are_told_by_the_settings_alone(place):
    settings = {"config.yaml", "report.html"}  # the page is there where the run was long enough
    assert {"config.yaml"} <= tellers(run_of(place), watched.USER) <= settings
    assert {"config.yaml"} <= tellers(run_of(place), str(place)) <= settings
    assert tellers(place / "shared", watched.USER) == set()
    here = str(Path(__file__).parents[2])
    assert tellers(run_of(place), here) <= TELLS_PATHS | settings


@pytest.mark.parametrize("word", [watched.QUESTION, watched.ANSWER, watched.PICTURE])
def test_no_question_answer_or_picture_is_told(place, word):
    assert tellers(run_of(place), word) == set()
    assert tellers(place / "shared", word) == set()
    assert not list(run_of(place).rglob("*.png"))


def test_the_search_finds_what_is_there(place):
    weights = tellers(run_of(place), "lora_A")
    assert any("best.ckpt!" in name for name in weights)
    assert "adapter/adapter_model.safetensors" in weights


def test_a_document_run_keeps_its_answers_to_itself(tmp_path):
    small = ["--data.num_base=2", "--data.num_canaries={1: 4}", "--data.num_eval=2"]
    small.append("--data.seed=7")
    words = ["fit", "--config=documents/fake_documents.yaml", *small, "--trainer.max_epochs=1"]
    run = tmp_path / "run"
    watched.qpriv(tmp_path, [*words, f"--trainer.default_root_dir={run}"])
    data = FakeDocuments(num_base=2, num_canaries={1: 4}, num_eval=2, seed=7)
    samples = [sample for split in ("train", "val") for sample in data.split_samples(split)]
    private = {text for sample in samples for text in (sample.question, *sample.answers)}
    told = {text: found for text in private if len(text) > 5 and (found := tellers(run, text))}
    assert len(private) > 20 and told == {}
    assert watched.attempts(tmp_path) == []
