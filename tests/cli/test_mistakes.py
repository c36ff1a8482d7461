"""What a person may get wrong: a few lines, exit code 2, no traceback, before long work."""

import sys
import zipfile

import pytest
import torch

from cli.errors import MAX_LINES
from cli.main import main
from qpriv.models.llava.vision_language import VisionLanguageModel
from tests.data.slake import data as slake

VQA = ["fit", "--config=tiny/vqa.yaml"]
SLAKE = ["fit", "--model=VQAModule", "--data=SLAKE", "--run.wandb=off"]
FIXED = [
    *VQA,
    "--model.policy=FixedRatioPruning",
    "--model.policy.predictor=runs/latest/student/predictor",
]

MISTAKES = {
    "unknown option": ([*VQA, "--trainer.max_epoch=3"], "trainer.max_epochs"),
    "abbreviated option": ([*VQA, "--trainer.max_ep=3"], "max_ep"),
    "unknown model option": ([*VQA, "--model.polcy=NoPruning"], "did you mean policy"),
    "unknown model": (["fit", "--model=VQAModul", "--data=FaceScenes"], "did you mean VQAModule"),
    "unknown data": ([*VQA, "--data=FaceScene"], "did you mean FaceScenes"),
    "unknown policy": ([*VQA, "--model.policy=FixedPruning"], "did you mean FixedRatioPruning"),
    "unknown choice": ([*VQA, "--model.schedule=cosin"], "cosin"),
    "wrong type": ([*VQA, "--model.rank=many"], "many"),
    "missing config": (["fit", "--config=nowhere.yaml"], "nowhere.yaml"),
    "no model": (["fit", "--data=FaceScenes"], "model"),
    "ratio above one": ([*FIXED, "--model.policy.ratio=1.2"], "1.2"),
    "negative ratio": ([*FIXED, "--model.policy.ratio=-0.1"], "-0.1"),
    "k_min above N": ([*FIXED, "--model.policy.k_min=65"], "k_min is 65 with 64 patches"),
    "negative k_min": ([*FIXED, "--model.policy.k_min=-1"], "k_min is -1"),
    "policy without predictor": ([*VQA, "--model.policy=DynamicPruning"], "needs a predictor"),
    "missing predictor": (
        [*VQA, "--model.policy=DynamicPruning", "--model.policy.predictor=runs/gone"],
        "runs/gone",
    ),
    "cut beyond depth": ([*VQA, "--model.cuts=[8]"], "cut 8 is beyond the decoder's 8 layers"),
    "cuts that descend": ([*VQA, "--model.cuts=[4,2]"], "ascending"),
    "missing backbone": ([*VQA, "--model.backbone=/gone/llava"], "/gone/llava"),
    "rank of zero": ([*VQA, "--model.rank=0"], "rank is 0"),
    "negative learning rate": ([*VQA, "--model.learning_rate=-1"], "learning_rate is -1"),
    "warm-up above one": ([*VQA, "--model.warmup=2"], "warmup is 2"),
    "batch of zero": ([*VQA, "--data.batch_size=0"], "batch_size is 0"),
    "empty data": ([*VQA, "--data.num_train=0", "--data.num_memorised=0"], "empty"),
    "stage before is missing": (
        ["fit", "--config=tiny/student.yaml", "--model.predictor=runs/gone/predictor"],
        "run the threshold teacher stage first",
    ),
    "nothing to go on with": ([*VQA, "--run.name=new", "--ckpt_path=last"], "no run of new"),
    "missing checkpoint": (["validate", *VQA[1:], "--ckpt_path=gone.ckpt"], "gone.ckpt"),
    "no probe to run": (["attack", *VQA[1:]], "there is no probe to run"),
    "unknown command option": (["report", "--ot=x", "runs"], "did you mean out"),
    "unknown data set": (["data", "check", "--dataset=SLAK", "--root=."], "SLAK"),
    "data set of nowhere": (["data", "check", "--dataset=SLAKE", "--root=/gone"], "/gone"),
    "data without a root": (["data", "check", "--dataset=SLAKE"], "--root"),
    "data action unknown": (["data", "chek"], "chek"),
    "report of nothing": (["report"], "runs"),
    "study of nothing": (["study"], "--config"),
    "study option unknown": (["study", "--config=study/demo.yaml", "--job=1"], "did you mean jobs"),
    "comparison with itself alone": (["compare", "runs"], "B"),
    "comparison with a missing run": (["compare", "runs/gone", "runs/gone"], "runs/gone"),
    "plan of a teacher": (["plan", "--config=tiny/student.yaml"], "plan of PruningStudent"),
    "plan without text": (["plan", *VQA[1:], "--text_tokens=0"], "text_tokens"),
    "plan of a missing backbone": (["plan", *VQA[1:], "--model.backbone=/gone"], "/gone"),
    "released data of nowhere": ([*SLAKE, "--data.root=/gone"], "/gone"),
    "released data that is not there": ([*SLAKE, "--data.root=empty"], "no file train.json"),
    "web page for data": ([*SLAKE, "--data.root=page"], "web page"),
    "data that ends early": ([*SLAKE, "--data.root=cut"], "record"),
    "archive that climbs out": ([*SLAKE, "--data.root=slip.zip"], "leaves the data folder"),
    "tar for an archive": ([*SLAKE, "--data.root=data.tar.gz"], "not a .zip"),
    "unknown split": ([*SLAKE, "--data.test_split=nightly", "--data.root=release"], "nightly"),
    "victim that takes all": ([*SLAKE, "--data.victim_share=0.5"], "victim_share is 0.5"),
    "unknown optimiser": ([*VQA, "--model.optimizer=sgd"], "sgd"),
    "moments paged without a GPU": (
        [*VQA, "--model.optimizer=paged_adamw8bit", "--trainer.accelerator=cpu"],
        "this run is on cpu",
    ),
    "unknown format of weights": ([*VQA, "--model.quantization=int4"], "int4"),
    "unknown strategy": ([*VQA, "--trainer.strategy=ddpp"], "ddpp"),
    "unknown accelerator": ([*VQA, "--trainer.accelerator=gpuu"], "gpuu"),
    "merge of no run": (["merge", "runs/gone", "--out=merged"], "no run of a VQAModule"),
    "no validation share": ([*SLAKE, "--data.val_fraction=0"], "val_fraction"),
    "unknown language": ([*SLAKE, "--data.lang=de"], "de"),
    "unknown on_leak": ([*SLAKE, "--data.on_leak=ignore"], "ignore"),
    "evaluation of nothing": ([*VQA, "--data.max_eval=0"], "max_eval is 0"),
}


@pytest.fixture(autouse=True)
def bad_inputs(here):
    """Broken data, checkpoints and configurations in the folder the commands run in."""
    for name, content in (("page", "<!DOCTYPE html>"), ("cut", '[{"qid": 1, "img_name": "a')):
        (here / name).mkdir()
        (here / name / "train.json").write_text(content)
    (here / "empty").mkdir()
    slake.write_release(here / "release")
    with zipfile.ZipFile(here / "slip.zip", "w") as archive:
        archive.writestr("../train.json", "[]")
    (here / "data.tar.gz").write_bytes(b"\x1f\x8b0")


def test_there_are_fifty():
    assert len(MISTAKES) >= 50


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_a_few_lines(name, here, capsys):
    words, told = MISTAKES[name]
    before = set(here.glob("runs/*/checkpoints"))
    with pytest.raises(SystemExit) as leaving:
        main(words)
    err = capsys.readouterr().err
    assert leaving.value.code == 2
    assert told in err
    assert "Traceback" not in err
    error = err[err.index("qpriv: error:") :]
    assert len(error.splitlines()) <= MAX_LINES
    assert set(here.glob("runs/*/checkpoints")) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_told_before_weights_load(here, capsys, monkeypatch):
    monkeypatch.setattr(VisionLanguageModel, "from_pretrained", lambda *_, **__: pytest.fail())
    with pytest.raises(SystemExit) as leaving:
        main([*VQA, "--trainer.accelerator=gpu"])
    assert leaving.value.code == 2
    told = capsys.readouterr().err.partition("qpriv: error: ")[2]
    assert "(in --trainer)" in told and "gpu" in told and len(told.splitlines()) <= MAX_LINES


@pytest.mark.parametrize("command", ["server", "client"])
def test_a_missing_extra_is_named(command, monkeypatch, capsys):
    needing = ("cli.parties", "cli.client", "qpriv.transport")
    for name in [name for name in sys.modules if name.startswith(needing)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(SystemExit) as leaving:
        main([command, "--config=tiny/vqa.yaml"])
    assert leaving.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "grpcio is not installed: pip install 'qpriv[grpc]'" in line


def test_a_broken_configuration_is_named(here, tmp_path, capsys):
    broken = tmp_path / "broken.yaml"
    broken.write_text("model: [unclosed\n")
    with pytest.raises(SystemExit) as leaving:
        main(["fit", f"--config={broken}"])
    assert leaving.value.code == 2
    assert "broken.yaml" in capsys.readouterr().err


def test_debug_shows_the_traceback(here):
    with pytest.raises(Exception, match="rank is 0"):
        main([*VQA, "--model.rank=0", "--debug"])
