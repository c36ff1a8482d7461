"""The five sets of D_priv in all their layouts, the bags, and what blur alone tells of them."""

import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

from qpriv.datasets.dpriv import eurosat as eurosat_set
from qpriv.datasets.dpriv.bags import DPriv, ResizedImage
from qpriv.datasets.dpriv.celeba import CelebA
from qpriv.datasets.dpriv.cifar10 import CIFAR10
from qpriv.datasets.dpriv.confound import measure_confound
from qpriv.datasets.dpriv.eurosat import EuroSAT
from qpriv.datasets.dpriv.mnist import MNIST
from qpriv.datasets.dpriv.nih import NIHChestXray14
from qpriv.datasets.sample import ArrayImage
from qpriv.errors import DataError
from tests.data.celeba import data as celeba
from tests.data.cifar10 import data as cifar10
from tests.data.eurosat import data as eurosat
from tests.data.mnist import data as mnist
from tests.data.nih import data as nih
from tests.qpriv.datasets.contract import zipped


def write_eurosat(root):
    return eurosat.write_release(root, eurosat_set.CLASSES)


SETS = {
    "celeba": (CelebA, celeba.write_release),
    "kaggle": (CelebA, celeba.write_kaggle),
    "nih": (NIHChestXray14, nih.write_release),
    "eurosat": (EuroSAT, write_eurosat),
    "mnist": (MNIST, mnist.write_release),
    "mnist.gz": (MNIST, lambda root: mnist.write_release(root, packed=True)),
    "cifar10": (CIFAR10, cifar10.write_release),
}


@pytest.fixture(params=SETS)
def one_set(request, tmp_path):
    kind, write = SETS[request.param]
    return kind, write(tmp_path / "release")


def test_rows_are_accounted_for_and_images_load(one_set):
    kind, root = one_set
    for split in kind.splits:
        dataset = kind(root, split)
        report = dataset.report
        assert report.read == report.kept + report.dropped.total() and len(dataset) == report.kept
        assert {sample.image.load().mode for sample in dataset.samples} == {"RGB"}


def test_no_person_patient_or_image_is_in_two_splits(one_set):
    kind, root = one_set
    groups = [{s.group_id for s in kind(root, split).samples} for split in kind.splits]
    assert all(groups) and sum(map(len, groups)) == len(set.union(*groups))


def test_a_zip_reads_like_the_folder(one_set, tmp_path):
    kind, root = one_set
    one, other = kind(root, "train"), kind(zipped(root, tmp_path / "x.zip"), "train")
    assert [(s.image_id, s.labels, s.meta) for s in one.samples] == [
        (s.image_id, s.labels, s.meta) for s in other.samples
    ]
    assert one[0].image.load().tobytes() == other[0].image.load().tobytes()


def test_the_cap_is_a_seeded_draw(one_set):
    kind, root = one_set
    draws = [[s.image_id for s in kind(root, "train", 4, seed).samples] for seed in range(6)]
    assert all(len(draw) == 4 for draw in draws)
    assert draws[0] == [s.image_id for s in kind(root, "train", 4, 0).samples]
    assert any(draw != draws[0] for draw in draws)


def test_an_unknown_split_and_an_empty_folder_are_one_error_each(one_set, tmp_path):
    kind, root = one_set
    with pytest.raises(DataError, match=r"'all'.*train, val, test"):
        kind(root, "all")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as caught:
        kind(tmp_path / "empty", "train")
    assert caught.value.remedy


def test_celeba_reads_the_same_forty_attributes_from_text_and_table(tmp_path):
    text = CelebA(celeba.write_release(tmp_path / "a"), "train")
    table = CelebA(celeba.write_kaggle(tmp_path / "b"), "train")
    wanted = [
        tuple(name for name, value in zip(celeba.NAMES, row, strict=True) if value == 1)
        for row in celeba.values()[:6]
    ]
    assert [s.labels for s in text.samples] == [s.labels for s in table.samples] == wanted
    assert text[0].group_id == text[1].group_id  # one person
    assert len(CelebA(tmp_path / "a", "test")) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!DOCTYPE html><html lang='fr'>quota</html>", "web page"),
        (b"9\nBald Smiling\n000001.jpg 1 -1\n", "2 attribute names instead of 40"),
        (None, r"\d values instead of 40.*line 11"),
    ],
)
def test_celeba_says_what_is_wrong_with_its_list(tmp_path, content, message):
    path = celeba.write_release(tmp_path) / "celeba/list_attr_celeba.txt"
    path.write_bytes(content or path.read_bytes()[:-95])
    with pytest.raises(DataError, match=message):
        CelebA(tmp_path, "train")


@pytest.mark.parametrize("variant", nih.VARIANTS)
def test_nih_headers_all_give_the_same_rows(tmp_path, variant):
    wanted = NIHChestXray14(nih.write_release(tmp_path / "a"), "train")
    found = NIHChestXray14(nih.write_release(tmp_path / "b", variant), "train")
    assert [(s.image_id, s.labels, s.meta) for s in found.samples] == [
        (s.image_id, s.labels, s.meta) for s in wanted.samples
    ]
    assert found[1].labels == ("Cardiomegaly", "Effusion")


def test_nih_ages_are_years_and_impossible_ones_unknown(tmp_path):
    root = nih.write_release(tmp_path, ages=["058Y", "006M", "365D", "411"])
    ages = {
        s.meta["age"] for split in ("train", "val") for s in NIHChestXray14(root, split).samples
    }
    assert {age and round(age, 2) for age in ages} == {58, 0.5, 1, None}
    report = NIHChestXray14(root, "train").report
    assert any("above 120" in kind for kind in report.repaired)


def test_nih_boxes_spell_infiltration_as_the_labels_do(tmp_path):
    last = NIHChestXray14(nih.write_release(tmp_path), "test").samples[-1]
    assert last.meta["boxes"] == (("Infiltration", (2, 2, 6, 6)),)


def test_nih_without_lists_parts_patients_and_says_so(tmp_path):
    root = nih.write_release(tmp_path)
    (root / "test_list.txt").unlink()
    sets = [NIHChestXray14(root, split) for split in NIHChestXray14.splits]
    assert sum(map(len, sets)) == 20
    assert any("patients parted" in note for note in sets[0].report.notes)


def test_nih_pointer_and_truncation_are_named(tmp_path):
    path = nih.write_release(tmp_path) / "Data_Entry_2017_v2020.csv"
    whole = path.read_bytes()
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DataError, match="LFS"):
        NIHChestXray14(tmp_path, "train")
    path.write_bytes(whole[:-60])
    with pytest.raises(DataError, match=r"cells instead of.*line 21"):
        NIHChestXray14(tmp_path, "train")


def test_eurosat_indices_do_not_depend_on_which_folders_are_there(tmp_path):
    root = eurosat.write_release(tmp_path, ["Forest", "River", "SeaLake"], "EuroSAT_RGB")
    (root / "EuroSAT_RGB/Highway").mkdir()
    found = {
        (s.labels[0], s.meta["class_index"])
        for split in EuroSAT.splits
        for s in EuroSAT(root, split).samples
    }
    assert found == {("Forest", 1), ("River", 8), ("SeaLake", 9)}
    assert "Highway" in EuroSAT(root, "train").report.notes[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-5], "ends early"),
        (lambda data: b"<html>", "web page"),
        (lambda data: b"\x1f\x8b" + data, "gzip"),
        (lambda data: b"\x00\x00\x08\x01" + data[4:], "magic"),
    ],
)
def test_mnist_names_a_broken_file(tmp_path, change, message):
    path = mnist.write_release(tmp_path) / "MNIST/raw/train-images-idx3-ubyte"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=rf"{message}.*train-images|train-images.*{message}"):
        MNIST(tmp_path, "train")


def test_mnist_refuses_labels_of_another_number(tmp_path):
    folder = mnist.write_release(tmp_path) / "MNIST/raw"
    shutil.copy(folder / "t10k-labels-idx1-ubyte", folder / "train-labels-idx1-ubyte")
    with pytest.raises(DataError, match="20 images and 6 labels"):
        MNIST(tmp_path, "train")


def test_cifar10_planes_become_pixels_and_code_does_not_run(tmp_path):
    root = cifar10.write_release(tmp_path)
    path = root / "cifar-10-batches-py/test_batch"
    batch = pickle.loads(path.read_bytes())
    sample = CIFAR10(root, "test")[1]
    pixels = np.asarray(sample.image.load())
    assert pixels[3, 5].tolist() == batch[b"data"][1].reshape(3, 32, 32)[:, 3, 5].tolist()
    assert sample.labels == ("automobile",)

    class Malicious:
        def __reduce__(self):
            return (open, (str(tmp_path / "marker"), "w"))

    path.write_bytes(pickle.dumps(batch | {b"labels": Malicious()}, 2))
    with pytest.raises(DataError, match="could run code"):
        CIFAR10(root, "test")
    assert not (tmp_path / "marker").exists()
    path.write_bytes(pickle.dumps({"data": [1]}, 2))
    with pytest.raises(DataError, match="not a batch"):
        CIFAR10(root, "test")


@pytest.fixture
def bags(tmp_path):
    face, digit = SETS["celeba"], SETS["mnist"]
    return DPriv([face[0](face[1](tmp_path / "a"), "train"), digit[0](digit[1](tmp_path / "b"))])


def test_bags_are_labelled_by_set_at_one_size(bags):
    assert {(s.source, s.sensitive) for s in bags.samples} == {("CelebA", True), ("MNIST", False)}
    assert {s.image.load().size for s in bags.samples} == {(32, 32)}
    assert len({s.key for s in bags.samples}) == len(bags)
    with pytest.raises(DataError, match="a sensitive and a harmless set"):
        DPriv([])


def test_resizing_crops_the_longer_side_in_the_middle():
    wide = np.zeros((2, 6, 3), np.uint8)
    wide[:, 2:4] = 255
    resized = ResizedImage(ArrayImage(wide), 4).load()
    assert resized.size == (4, 4) and np.asarray(resized).min() == 255


class Noise:
    """Pictures of noise or of smooth ramps, in two sizes."""

    def __init__(self, number, sharp, side):
        rng = np.random.default_rng(number)
        pixels = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
        smooth = Image.fromarray(pixels).resize((4, 4)).resize((side, side))
        self.image = Image.fromarray(pixels) if sharp else smooth

    def load(self):
        return self.image


@pytest.mark.parametrize(("sharp", "warned"), [(True, True), (False, False)])
def test_the_confound_report_sees_blur_and_its_absence(bags, sharp, warned):
    from dataclasses import replace

    bags.originals = [
        (replace(image, image=Noise(number, sharp and sensitive, 40)), sensitive)
        for number, (image, sensitive) in enumerate(bags.originals * 4)
    ]
    bags.samples = [
        replace(
            bags.samples[0],
            image_id=str(number),
            image=ResizedImage(image.image, 32),
            sensitive=sensitive,
        )
        for number, (image, sensitive) in enumerate(bags.originals)
    ]
    found = measure_confound(bags)
    assert (found.blur_after > 0.9) is warned
    assert ("confounded" in str(found)) is warned
    assert found.resolution < 0.6  # all of one size
