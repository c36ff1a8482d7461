"""Modules over released sets: what `setup` reads, reports and refuses, and the attackers' folds."""

import json
import logging
import tracemalloc
from collections import Counter
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from cli.client import ClientData
from datamodules.conversations import Conversations
from datamodules.dpriv import DPriv
from datamodules.gqa import GQA
from datamodules.okvqa import OKVQA
from datamodules.path_vqa import PathVQA
from datamodules.slake import SLAKE
from datamodules.vqa_mixture import VQAMixture
from datamodules.vqa_rad import VQARAD
from datamodules.vqav2 import VQAv2
from qpriv.datasets.folds import shared_groups
from qpriv.datasets.sample import FileImage
from qpriv.errors import ConfigError, DataError
from tests.data import pictures
from tests.data.celeba import data as celeba
from tests.data.cifar10 import data as cifar10
from tests.data.conversations import data as conversations
from tests.data.gqa import data as gqa
from tests.data.mnist import data as mnist
from tests.data.okvqa import data as okvqa
from tests.data.path_vqa import data as path_vqa
from tests.data.slake import data as slake
from tests.data.vqa_rad import data as vqa_rad
from tests.data.vqav2 import data as vqav2

MODULES = {
    "GQA": (GQA, gqa.write_release),
    "VQAv2": (VQAv2, vqav2.write_release),
    "OKVQA": (OKVQA, okvqa.write_release),
    "SLAKE": (SLAKE, slake.write_release),
    "VQARAD": (VQARAD, vqa_rad.write_release),
    "PathVQA": (PathVQA, path_vqa.write_release),
    "Conversations": (Conversations, conversations.write_release),
}


@pytest.fixture(params=MODULES)
def module_and_root(request, tmp_path):
    kind, write = MODULES[request.param]
    return kind, str(write(tmp_path))


def test_setup_reads_and_logs_every_split_and_keeps_them_apart(module_and_root, caplog):
    kind, root = module_and_root
    module = kind(root=root, val_fraction=0.5, seed=1)
    with caplog.at_level(logging.INFO):
        module.setup("fit")
        module.setup("test")
    for split in ("train", "val", "test"):
        assert f"{kind.__name__}/{split}: " in caplog.text
        assert module.samples(split)
    assert not shared_groups(module.samples("train"), module.samples("val"))
    assert module.answer_rule == kind.source.rule


def test_caps_draw_by_image_and_every_process_draws_the_same(module_and_root):
    kind, root = module_and_root
    draws = [
        [s.key for s in kind(root=root, val_fraction=0.5, max_train=2, seed=seed).samples("train")]
        for seed in (5, 5)
    ]
    assert draws[0] == draws[1] and 1 <= len(draws[0]) <= 2


def test_leaks_are_logged_or_stop(tmp_path, caplog):
    root = str(slake.write_release(tmp_path))
    with caplog.at_level(logging.WARNING):
        SLAKE(root=root).setup("fit")
        assert "also in" not in caplog.text
        SLAKE(root=root, lang="all").setup("fit")
    assert "2 of 2 images of test are also in train" in caplog.text
    with pytest.raises(DataError, match="on_leak"):
        SLAKE(root=root, lang="all", on_leak="error").setup("fit")


def test_missing_images_stop_at_setup_or_are_dropped_with_a_count(tmp_path, caplog):
    root = slake.write_release(tmp_path)
    (root / "imgs/xmlab1/source.jpg").unlink()
    with pytest.raises(DataError, match=r"images of 3 of 6 samples .*xmlab1.*missing_images"):
        SLAKE(root=str(root)).setup("fit")
    module = SLAKE(root=str(root), missing_images="drop")
    with caplog.at_level(logging.INFO):
        module.setup("fit")
    assert len(module.samples("train")) == 3
    assert "dropped 3: image is missing" in caplog.text


def test_attackers_get_images_the_victim_never_saw(tmp_path):
    for number in range(60):
        pictures.save(tmp_path / f"{number}.jpg", number)
    rows = [
        {
            "id": str(number),
            "image": f"{number}.jpg",
            "conversations": [{"from": "human", "value": "a?"}, {"from": "gpt", "value": "b"}] * 2,
        }
        for number in range(60)
    ]

    for name, part in (("train", rows[:50]), ("val", rows[50:55]), ("test", rows[55:])):
        (tmp_path / f"{name}.json").write_text(json.dumps(part))
    module = Conversations(root=str(tmp_path), victim_share=0.2, seed=3)
    lists = [module.members(), module.nonmembers(), module.population(), module.auxiliary()]
    assert [len({s.group_id for s in one}) for one in lists] == [10, 10, 25, 5]
    lists.append(module.targets())
    assert all(not shared_groups(one, other) for one, other in combinations(lists, 2))
    assert len(module.targets()) == 5  # one question an image
    assert not module.gallery()


LISTS = ("members", "nonmembers", "population", "auxiliary", "targets")


def with_model(module, refused):
    """Attach a model that does not take the texts of some samples."""

    def check_text(sample):
        if sample.key in refused:
            raise DataError("too long", where=sample.key)

    model = Mock(preprocessor=Mock(check_text=check_text), data_replicas=1)
    module.trainer = Mock(lightning_module=model, global_rank=0, world_size=1)
    return module


@pytest.fixture
def attacked(tmp_path):
    """Conversation files of 60 images, of which one in each list has a text that is too long."""
    for number in range(60):
        pictures.save(tmp_path / f"{number}.jpg", number)
    turns = [{"from": "human", "value": "a?"}, {"from": "gpt", "value": "b"}] * 2
    rows = [{"id": n, "image": f"{n}.jpg", "conversations": turns} for n in range(60)]
    for name, part in (("train", rows[:50]), ("val", rows[50:55]), ("test", rows[55:])):
        (tmp_path / f"{name}.json").write_text(json.dumps(part))

    def made(on_bad_row):
        return Conversations(root=str(tmp_path), victim_share=0.2, seed=3, on_bad_row=on_bad_row)

    whole = made("stop")
    refused = {name: getattr(whole, name)()[1].key for name in LISTS}
    return made, refused


@pytest.mark.parametrize("name", LISTS)
def test_texts_the_model_does_not_take_are_in_no_list(attacked, name, caplog):
    made, refused = attacked
    with pytest.raises(DataError, match=r"too long.*on_bad_row"):
        getattr(with_model(made("stop"), refused.values()), name)()
    module = made("drop")
    whole = getattr(module, name)()  # before there is a model
    left = getattr(with_model(module, refused.values()), name)()
    assert {s.key for s in whole} - {s.key for s in left} == {refused[name]}
    # of an image whose first question is left out, another one is attacked
    assert len(whole) - len(left) == (name not in ("auxiliary", "targets"))
    assert "1 rows are left out" in caplog.text and refused[name] in caplog.text
    other = getattr(with_model(module, ()), name)()  # of a model that takes them all
    assert [sample.key for sample in other] == [sample.key for sample in whole]


def test_an_attack_and_a_fit_read_the_same_members(attacked):
    made, refused = attacked
    fit, attack = (with_model(made("drop"), refused.values()) for _ in range(2))
    loader = fit.train_dataloader()
    attack.val_dataloader()
    keys = [sample.key for sample in loader.dataset]
    assert [s.key for s in attack.members()] == [s.key for s in fit.members()] == keys
    assert len(loader.sampler) == len(keys) and refused["members"] not in keys


def test_pictures_are_decoded_once_and_texts_checked_once_however_often_lists_are_asked_for(
    attacked, monkeypatch, tmp_path, caplog
):
    made, _ = attacked
    victims, decoded, checked = made("stop").nonmembers(), Counter(), Counter()
    Path(tmp_path / victims[0].image_id).write_bytes(b"no picture")
    real = FileImage.load

    def load(image):
        decoded[image.path.name] += 1
        return real(image)

    monkeypatch.setattr(FileImage, "load", load)
    module = with_model(made("drop"), ())
    preprocessor = module.trainer.lightning_module.preprocessor
    preprocessor.check_text = lambda sample: checked.update([sample.key])
    for _ in range(3):
        found = {name: getattr(module, name)() for name in LISTS}
    assert set(decoded.values()) == {1} and len(decoded) == 55  # all but those to validate on
    assert set(checked.values()) == {1}
    assert victims[0].image_id not in {sample.image_id for sample in found["nonmembers"]}
    assert "nonmembers: 2 rows are left out" in caplog.text


def test_a_victim_with_everything_leaves_nothing_to_attack_with(tmp_path):
    module = SLAKE(root=str(slake.write_release(tmp_path)))
    with pytest.raises(ConfigError, match="victim_share"):
        module.nonmembers()
    with pytest.raises(ConfigError, match=r"0\.5.*0\.22"):
        SLAKE(victim_share=0.5)


def test_the_servers_split_is_predicted_on_request(tmp_path):
    root = str(vqav2.write_release(tmp_path))
    assert VQAv2(root=root).samples("test")[0].split == "val"
    assert VQAv2(root=root, test_split="test-dev").samples("test")[0].split == "test-dev"


def test_a_mixture_caps_each_set_and_the_oracle(tmp_path):
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        root.mkdir()
    sets = [
        SLAKE(root=str(slake.write_release(roots[0]))),
        VQARAD(root=str(vqa_rad.write_release(roots[1]))),
    ]
    module = VQAMixture(datasets=sets, cap=4, oracle_cap=2, seed=0)
    module.setup("fit")
    assert [s.dataset for s in module.samples("train")] == ["SLAKE"] * 4 + ["VQARAD"] * 4
    assert {s.key for s in module.oracle_samples()} <= {s.key for s in module.samples("train")}
    assert len(module.oracle_samples()) == 4


def test_dpriv_reports_its_sets_and_their_confound(tmp_path, caplog):
    module = DPriv(
        celeba=str(celeba.write_release(tmp_path / "a")),
        mnist=str(mnist.write_release(tmp_path / "b")),
        cifar10=str(cifar10.write_release(tmp_path / "c")),
        cap=6,
    )
    with caplog.at_level(logging.INFO):
        module.setup("fit")
    for words in ("CelebA/train", "MNIST/val", "CIFAR10/train", "blur", "at the common size"):
        assert words in caplog.text
    with pytest.raises(DataError, match="a sensitive and a harmless set"):
        DPriv(mnist=str(tmp_path / "b")).setup("fit")


def test_dpriv_goes_on_without_missing_images_on_request_and_says_what_it_could_not_measure(
    tmp_path, caplog
):
    root = celeba.write_release(tmp_path / "a")
    next(root.rglob("000001.jpg")).unlink()
    settings = {"celeba": str(root), "mnist": str(mnist.write_release(tmp_path / "b")), "cap": 4}
    with pytest.raises(DataError, match=r"000001\.jpg.*missing_images"):
        DPriv(**settings | {"cap": None}).setup("fit")
    module = DPriv(**settings, missing_images="drop")
    with caplog.at_level(logging.INFO):
        module.setup("fit")
    assert "not measured how far blur alone tells the bags apart" in caplog.text
    assert all(sample.image.load() for sample in module.read("train"))


def test_a_mixture_reports_the_leaks_of_its_sets(tmp_path, caplog):
    root = str(slake.write_release(tmp_path))
    with caplog.at_level(logging.INFO):
        VQAMixture(datasets=[SLAKE(root=root, lang="all")], seed=0).setup("fit")
    assert "2 of 2 images of test are also in train" in caplog.text
    assert "SLAKE/train: 11 rows read" in caplog.text and "VQAMixture/train: " in caplog.text
    with pytest.raises(DataError, match="on_leak"):
        VQAMixture(datasets=[SLAKE(root=root, lang="all", on_leak="error")]).setup("fit")


def test_memory_stays_flat_as_a_set_grows_tenfold(tmp_path):
    def peak(images):
        root = tmp_path / str(images)
        rows = []
        for number in range(images):
            pictures.save(root / f"imgs/xmlab{number}/source.jpg", number, size=(160, 160))
            rows.append(slake.records("train")[0] | {"img_name": f"xmlab{number}/source.jpg"})

        (root / "train.json").write_text(json.dumps(rows))
        samples = SLAKE(root=str(root), missing_images="drop").samples("train")
        tracemalloc.start()
        for sample in samples:
            np.asarray(sample.image.load())  # numpy reports its memory, Pillow does not
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    picture = 160 * 160 * 3
    assert peak(20) > picture
    assert peak(200) < peak(20) + 2 * picture


def test_a_mixture_checks_texts_as_its_sets_do(tmp_path, caplog):
    root = str(slake.write_release(tmp_path))

    def made(on_bad_row):
        return VQAMixture(datasets=[SLAKE(root=root, on_bad_row=on_bad_row)], seed=0)

    key = made("stop").samples("train")[0].key
    with pytest.raises(DataError, match=r"too long.*on_bad_row"):
        with_model(made("stop"), [key]).train_dataloader()
    module = with_model(made("drop"), [key])
    for samples in (module.train_dataloader().dataset, module.oracle_samples()):
        assert key not in {sample.key for sample in samples}
    assert "1 rows are left out" in caplog.text


def test_a_client_without_a_trainer_checks_texts_too(attacked):
    made, refused = attacked

    def check_text(sample):
        if sample.key in refused.values():
            raise DataError("too long", where=sample.key)

    def client(module):
        words = {"client": 0, "shard": False}
        cli = SimpleNamespace(datamodule=module, given=words.get)
        model = SimpleNamespace(
            paradigm=SimpleNamespace(num_clients=1, shards=None),
            preprocessor=SimpleNamespace(check_text=check_text),
        )
        return ClientData(cli, model)

    with pytest.raises(DataError, match=r"too long.*on_bad_row"):
        client(made("stop"))
    found = client(made("drop"))
    assert refused["members"] not in {sample.key for sample in found.loader.dataset}
    assert len(found.loader.dataset) == len(made("drop").members()) - 1
    assert found.validation() == made("drop").samples("val")
    refused["val"] = found.validation()[0].key
    assert refused["val"] not in {sample.key for sample in client(made("drop")).validation()}
    refused["members"] = ""
    with pytest.raises(DataError, match=f"too long.*{refused['val']}"):
        client(made("stop"))
