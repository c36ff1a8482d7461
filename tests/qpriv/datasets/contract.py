"""What every VQA set must do, whatever its format."""

import json
import random
import shutil
import zipfile

import pytest

from qpriv.datasets.base import VQADataset
from qpriv.datasets.folds import shared_groups, split_by_group
from qpriv.datasets.leaks import find_leaks
from qpriv.datasets.sample import MissingImage
from qpriv.errors import DataError
from qpriv.metrics import score_sample


def zipped(folder, archive):
    """Pack a folder into a ``.zip``."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder))
    return archive


class VQASetContract:
    """Fixtures ``kind`` (the class), ``release`` (a folder) and ``mirror`` (a folder or None)."""

    splits_in_release: tuple[str, ...]
    splits_in_mirror: tuple[str, ...] = ()
    leaks_as_released = False
    main_file: str
    """A file of the first split, as a pattern below the release."""

    @pytest.fixture
    def root(self, tmp_path_factory, release):
        return release(tmp_path_factory.mktemp("release"))

    @pytest.fixture
    def read(self, kind, root):
        return {split: kind(root, split) for split in self.splits_in_release}

    def test_is_a_vqa_dataset_whose_rows_are_accounted_for(self, read):
        for dataset in read.values():
            report = dataset.report
            assert isinstance(dataset, VQADataset)
            assert len(dataset) == report.kept > 0
            assert report.read == report.kept + report.dropped.total()
            assert str(report.read) in str(report)

    def test_ids_are_strings_and_unique(self, read):
        keys = [sample.key for dataset in read.values() for sample in dataset.samples]
        assert len(set(keys)) == len(keys)
        for sample in (sample for dataset in read.values() for sample in dataset.samples):
            assert all(isinstance(x, str) for x in (sample.qid, sample.image_id, sample.answer))

    def test_images_load_as_rgb(self, read):
        for dataset in read.values():
            assert {sample.image.load().mode for sample in dataset.samples} == {"RGB"}

    def test_the_gold_answer_scores_one(self, read):
        scores = [
            score_sample(sample.answer, sample, dataset.rule)
            for dataset in read.values()
            for sample in dataset.samples
            if sample.answer  # hidden in some test splits
        ]
        assert set(scores) == {1.0}

    def test_a_zip_reads_like_the_folder(self, kind, root, read, tmp_path):
        archive = zipped(root, tmp_path / "release.zip")
        for split, dataset in read.items():
            packed = kind(archive, split)
            assert [(s.key, s.question, s.answers) for s in packed.samples] == [
                (s.key, s.question, s.answers) for s in dataset.samples
            ]
            assert packed[0].image.load().tobytes() == dataset[0].image.load().tobytes()

    def test_the_mirror_has_the_same_questions(self, kind, mirror, read, tmp_path):
        if mirror is None:
            pytest.skip("no mirror")
        folder = mirror(tmp_path)
        for split in self.splits_in_mirror:
            copy = kind(folder, split)
            ours = sorted((s.question.lower(), s.answer.lower()) for s in read[split].samples)
            assert sorted((s.question.lower(), s.answer.lower()) for s in copy.samples) == ours
            assert len({s.group_id for s in copy.samples}) == copy.report.images
            assert copy[0].image.load().size == (12, 10)

    def test_no_image_is_in_two_splits_unless_the_release_says_so(self, read):
        leaks = find_leaks({name: dataset.samples for name, dataset in read.items()})
        assert bool(leaks) is self.leaks_as_released
        if {"train", "val"} <= set(read):
            assert not shared_groups(read["train"].samples, read["val"].samples)

    def test_folds_never_share_an_image(self, read):
        samples = next(iter(read.values())).samples
        for seed in range(50):
            share = random.Random(seed).uniform(0.05, 0.5)
            one, other, rest = split_by_group(samples, [share, share, 1 - 2 * share], seed)
            assert not shared_groups(one, other)
            assert not shared_groups([*one, *other], rest)
            assert sorted(s.key for s in [*one, *other, *rest]) == sorted(s.key for s in samples)

    def test_the_cap_is_a_seeded_draw_by_image(self, kind, root, read):
        split = self.splits_in_release[0]
        whole = [sample.key for sample in read[split].samples]
        cap = len(whole) // 2
        draws = [kind(root, split, cap=cap, seed=seed) for seed in (0, 0, 1, 2, 3, 4)]
        keys = [[sample.key for sample in draw.samples] for draw in draws]
        assert all(len(draw) == cap and set(draw) <= set(whole) for draw in keys)
        assert keys[0] == keys[1]
        assert any(draw != keys[0] for draw in keys[2:])
        assert draws[0].report.dropped.total() + cap == draws[0].report.read

    def test_an_unknown_split_is_named_with_those_there_are(self, kind, root):
        with pytest.raises(DataError, match=r"'nightly'.*train"):
            kind(root, "nightly")

    def test_a_missing_root_is_one_error(self, kind, tmp_path):
        with pytest.raises(DataError, match="nowhere"):
            kind(tmp_path / "nowhere", "train")

    def test_an_empty_root_says_what_to_get(self, kind, tmp_path):
        with pytest.raises(DataError, match=r"no file .*: (unpack|get|name|give)"):
            kind(tmp_path, "train")

    def test_a_missing_image_is_counted_and_named(self, kind, root, tmp_path):
        copy = tmp_path / "copy"
        shutil.copytree(root, copy)
        split = self.splits_in_release[0]
        gone = kind(copy, split)[0].image.path
        gone.unlink()
        dataset = kind(copy, split)
        assert dataset.report.missing_images == 1
        assert isinstance(dataset[0].image, MissingImage)
        with pytest.raises(DataError, match=rf"{gone.stem}.*(record|question|qid)"):
            dataset[0].image.load()

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"<!DOCTYPE html><html>quota</html>", "web page"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "LFS"),
            (b"", "empty"),
            (b"\x1f\x8b\x08\x00rest", "gzip"),
        ],
    )
    def test_a_broken_download_is_recognised(self, kind, root, tmp_path, content, message):
        path = self._with_main_file(root, tmp_path, lambda _: content)
        with pytest.raises(DataError, match=message) as caught:
            kind(path.parent, self.splits_in_release[0])
        assert path.name in str(caught.value)
        assert caught.value.remedy

    def test_a_truncated_file_is_recognised(self, kind, root, tmp_path):
        path = self._with_main_file(root, tmp_path, lambda data: data[: len(data) // 2])
        with pytest.raises(DataError, match=path.name) as caught:
            kind(path.parent, self.splits_in_release[0])
        assert caught.value.remedy

    def _with_main_file(self, root, tmp_path, change):
        original = next(root.rglob(self.main_file))
        path = tmp_path / original.name
        path.write_bytes(change(original.read_bytes()))
        return path


def rewrite(path, change):
    """Rewrite a JSON file as a function changes it."""
    path.write_text(json.dumps(change(json.loads(path.read_text(encoding="utf-8")))))
