"""The document commands and configurations, through the door a user takes."""

import json
import shutil
from pathlib import Path

import pytest

from cli.main import main
from qpriv.datasets.documents.docvqa import DocVQA
from qpriv.datasets.documents.fake_documents import DocumentMaker
from qpriv.datasets.documents.preparation import load_canaries, read_judged
from qpriv.result import read_results
from tests.qpriv.datasets.documents.docvqa_layout import write_docvqa

CONFIGS = Path(__file__).parents[2] / "cli/configs/documents"


@pytest.fixture(scope="module")
def docvqa(tmp_path_factory):
    root = tmp_path_factory.mktemp("docvqa")
    maker = DocumentMaker(seed=4)
    for split in ("train", "val"):
        made = [s for n in range(4) for s in maker.questions(maker.document(f"{split}{n}"), split)]
        write_docvqa(made, root / "release", split)
    words = [
        "prepare",
        "canaries",
        "--root",
        str(root / "release"),
        "--out",
        str(root / "canaries"),
    ]
    main([*words, "--number", "0", "--model", "tiny"])
    return root


def test_canaries_are_prepared_for_review(docvqa, capsys):
    assert load_canaries(docvqa / "canaries")
    assert (docvqa / "canaries/review.html").exists()
    assert len(DocVQA(docvqa / "release").samples) == 12


def test_a_page_that_cannot_be_decoded_is_told_before_answers_are_judged(docvqa, tmp_path, capsys):
    release, out = tmp_path / "release", tmp_path / "canaries"
    shutil.copytree(docvqa / "release", release)
    broken = DocVQA(release).samples[0]
    broken.image.path.write_bytes(broken.image.path.read_bytes()[:-40])
    words = ["prepare", "canaries", "--root", str(release), "--out", str(out), "--number", "0"]
    with pytest.raises(SystemExit):
        main(words)
    told = capsys.readouterr().err
    assert broken.image.path.name in told, told
    assert "on_bad_row" in told, told
    assert not out.exists()
    main([*words, "--on-bad-row", "drop"])
    assert len({canary.key for canary in read_judged(out / "canaries.jsonl")}) == 9
    assert "dropped 3: bad row" in capsys.readouterr().out


def fit(config, folder, *words):
    main(
        [
            "fit",
            "--config",
            str(CONFIGS / config),
            "--trainer.max_epochs",
            "1",
            "--trainer.accelerator",
            "cpu",
            "--trainer.precision",
            "32-true",
            "--trainer.default_root_dir",
            str(folder),
            *words,
        ]
    )


@pytest.mark.parametrize("config", sorted(p.name for p in CONFIGS.glob("fake_*.yaml")))
def test_embedded_configurations_fit(config, tmp_path):
    small = ["--data.num_base", "2", "--data.num_canaries", "{1: 2}", "--data.num_eval", "2"]
    fit(config, tmp_path, *small)
    (results,) = tmp_path.rglob("results.jsonl")
    names = {result.name for result in read_results(results)}
    assert "extraction/extractable" in names


def test_a_finished_checkpoint_is_attacked(tmp_path):
    small = ["--data.num_base", "2", "--data.num_canaries", "{1: 2}", "--data.num_eval", "2"]
    fit("fake_documents.yaml", tmp_path / "trained", *small)
    checkpoint = tmp_path / "trained/checkpoints/last.ckpt"
    words = ["attack", "--config", str(CONFIGS / "fake_documents.yaml"), *small]
    words += ["--ckpt_path", str(checkpoint), "--trainer.default_root_dir", str(tmp_path / "later")]
    main(words)
    during, after = (
        {r.name: (r.value, r.epoch) for r in read_results(tmp_path / run / "results.jsonl")}
        for run in ("trained", "later")
    )
    names = {name for name in after if name.startswith("extraction/")}
    assert {"extraction/extractable", "extraction/exposure", "extraction/first_epoch"} <= names
    assert {name: after[name] for name in names} == {name: during[name] for name in names}
    for run in ("trained", "later"):
        (keys,) = (tmp_path / run).rglob("extracted.json")
        assert len(json.loads(keys.read_text())) == after["extraction/extractable"][0]


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ("docvqa_donut.yaml", "tiny"),
        ("docvqa_pix2struct.yaml", "tiny-pix2struct"),
        ("docvqa_paligemma.yaml", "tiny-paligemma"),
    ],
)
def test_full_scale_configurations_fit_on_small_models(config, model, docvqa, tmp_path):
    own = {"tiny": ["--model.image_size", "null"], "tiny-pix2struct": ["--model.max_patches", "24"]}
    fit(
        config,
        tmp_path,
        "--model.document_model",
        model,
        "--data.root",
        str(docvqa / "release"),
        "--data.canary_folder",
        str(docvqa / "canaries"),
        *own.get(model, []),
    )
    (results,) = tmp_path.rglob("results.jsonl")
    assert read_results(results)


def test_the_reader_is_trained_by_command(tmp_path):
    main(["prepare", "reader", "--out", str(tmp_path / "reader"), "--steps", "2"])
    assert (tmp_path / "reader/model.safetensors").exists()
