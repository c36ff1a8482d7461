"""Cells of parquet files in any order: how often a row group is unpacked, and what is left behind."""

import os
import random
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qpriv.datasets import parquet_cells
from qpriv.datasets.files import DiskFile, zip_members
from qpriv.datasets.parquet_cells import SETTING, cell
from qpriv.datasets.vqav2 import VQAv2
from qpriv.errors import DataError

GROUPS, ROWS = 6, 20


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(SETTING, str(tmp_path / "arrow"))
    monkeypatch.setattr(parquet_cells, "_asked", set())
    monkeypatch.setattr(parquet_cells, "_latest", {})
    parquet_cells._unpacked.cache_clear()
    names = [{"bytes": b"picture %d" % number, "path": None} for number in range(GROUPS * ROWS)]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"image": names}), path, row_group_size=ROWS)
    return path


@pytest.fixture
def opened(monkeypatch):
    """Count how often a parquet file is opened, which is once for every row group unpacked."""
    counts, real = Counter(), parquet_cells.open_parquet

    def counted(file):
        counts[file.name] += 1
        return real(file)

    monkeypatch.setattr(parquet_cells, "open_parquet", counted)
    return counts


def shuffled():
    order = [(group, row) for group in range(GROUPS) for row in range(ROWS)]
    random.Random(0).shuffle(order)
    return order


def read(file):
    return [cell(file, group, row, "image")["bytes"] for group, row in shuffled()]


WANTED = [b"picture %d" % (group * ROWS + row) for group, row in shuffled()]


def test_a_shuffled_epoch_unpacks_each_row_group_twice_at_most(file, opened):
    for _ in range(3):
        assert read(DiskFile(file)) == WANTED
    assert GROUPS < opened.total() <= 2 * GROUPS


def test_reading_in_order_writes_nothing_however_often(file, opened):
    for number in [*range(GROUPS * ROWS)] * 3:
        cell(DiskFile(file), number // ROWS, number % ROWS, "image")
    assert not list(Path(os.environ[SETTING]).iterdir())
    assert opened.total() == 3 * GROUPS


def test_an_archive_is_unpacked_once(file, opened, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(file, "x.parquet")
    (member,) = zip_members(tmp_path / "x.zip")
    assert read(member) == WANTED
    assert opened.total() == 1


def test_a_file_that_changed_is_read_anew(file):
    cell(DiskFile(file), 0, 0, "image")
    pq.write_table(pa.table({"image": [{"bytes": b"another", "path": None}]}), file)
    assert cell(DiskFile(file), 0, 0, "image")["bytes"] == b"another"


def test_without_room_cells_are_read_and_that_it_is_slow_is_told(file, caplog, monkeypatch):
    def full(*words, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet_cells.pa.ipc, "new_file", full)
    parquet_cells._warn.cache_clear()
    assert read(DiskFile(file)) == WANTED
    assert caplog.text.count("No space left on device") == 1 and "TMPDIR" in caplog.text
    assert not list(Path(os.environ[SETTING]).iterdir())


def test_a_run_leaves_nothing_behind_and_its_processes_share_what_is_laid_out(file, tmp_path):
    code = f"""
import os, sys
from pathlib import Path
from qpriv.datasets import parquet_cells
for group in (5, 3):
    parquet_cells.cell(parquet_cells.DiskFile(Path({str(file)!r})), group, 0, "image")
first = os.environ[{SETTING!r}]
if os.fork() == 0:
    parquet_cells.cell(parquet_cells.DiskFile(Path({str(file)!r})), 1, 0, "image")
    sys.exit()
os.wait()
print(first, len(list(Path(first).iterdir())), oct(Path(first).stat().st_mode)[-3:])
"""
    environment = {key: value for key, value in os.environ.items() if key != SETTING}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, number, mode = done.stdout.split()
    assert folder.startswith(str(tmp_path)) and (number, mode) == ("2", "700")
    assert not Path(folder).exists() and not left_in(tmp_path)


MIRROR = """
import os, signal, sys
from pathlib import Path
from torch.utils.data import DataLoader
from qpriv.datasets.files import DiskFile
from qpriv.datasets.parquet import ParquetImage
from qpriv.datasets.vqav2 import VQAv2

class Pictures:
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        self.images[number].data()
        return os.environ["QPRIV_ARROW_FOLDER"]

def epochs(images, **options):
    images = Pictures(images)
    for _ in range(2):
        yield from DataLoader(images, 5, shuffle=True, num_workers=2, **options)
"""


def run(code, folder, **options):
    """Run a program whose folder for temporary files is the one given."""
    environment = {key: value for key, value in os.environ.items() if key != SETTING}
    return subprocess.run(
        [sys.executable, "-c", MIRROR + code],
        env=environment | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        **options,
    )


def left_in(folder):
    return sorted(path.name for path in folder.glob("qpriv-arrow-*"))


@pytest.fixture
def mirror(tmp_path):
    """A mirror whose rows name their images, so that no picture is read with the rows."""
    root = tmp_path / "mirror"
    names = [{"bytes": b"picture %d" % number, "path": None} for number in range(40)]
    rows = {"image": names, "question": ["what ?"] * 40, "answers": [["yes"] * 10] * 40}
    rows |= {
        "image_id": range(40),
        "question_id": range(40),
        "multiple_choice_answer": ["yes"] * 40,
    }
    root.mkdir()
    table = pa.table({name: list(column) for name, column in rows.items()})
    pq.write_table(table, root / "validation.parquet", row_group_size=5)
    return root


def test_workers_of_a_loader_share_a_folder_and_leave_nothing_behind(mirror, tmp_path):
    (temporary := tmp_path / "tmp").mkdir()
    code = f"""
images = [sample.image for sample in VQAv2({str(mirror)!r}, "val").samples]
(folder,) = {{name for batch in epochs(images) for name in batch}}
print(len(list(Path(folder).iterdir())))
"""
    laid_out = int(run(code, temporary, check=True).stdout)
    assert 0 < laid_out <= 8  # a row group once, whoever asked for it
    assert not left_in(temporary)


def test_workers_that_read_what_nobody_opened_before_leave_nothing_behind(mirror, tmp_path):
    (temporary := tmp_path / "tmp").mkdir()
    code = f"""
file = DiskFile(Path({str(mirror)!r}) / "validation.parquet")
images = [ParquetImage(file, number // 5, number % 5) for number in range(40)]
print(len({{name for batch in epochs(images) for name in batch}}))
"""
    assert run(code, temporary, check=True).stdout.split() == ["4"]
    assert not left_in(temporary)


def test_what_a_killed_run_left_is_removed_by_the_next_and_what_lives_is_not(mirror, tmp_path):
    (temporary := tmp_path / "tmp").mkdir()
    opened = f"VQAv2({str(mirror)!r}, 'val')"
    run(f"{opened}; os.kill(os.getpid(), signal.SIGKILL)", temporary)
    (killed,) = left_in(temporary)
    strange = temporary / "qpriv-arrow-mine"
    strange.mkdir()  # not one of a run
    code = f"""
{opened}
if os.fork() == 0:
    sys.exit()
os.wait()
print(*sorted(path.name for path in Path({str(temporary)!r}).glob("qpriv-arrow-*")))
sys.stdout.flush()
sys.stdin.read()
"""
    environment = {key: value for key, value in os.environ.items() if key != SETTING}
    with subprocess.Popen(
        [sys.executable, "-c", MIRROR + code],
        env=environment | {"TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as alive:
        there = alive.stdout.readline().split()
        assert len(there) == 2 and killed not in there and strange.name in there
        run(opened, temporary, check=True)
        assert left_in(temporary) == there
        alive.communicate("")
    assert left_in(temporary) == [strange.name]


def test_a_folder_that_cannot_be_written_to_is_told(mirror, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(SETTING, str(tmp_path / "file" / "x"))
    with pytest.raises(DataError, match=rf"no folder for the pictures.*{SETTING}"):
        VQAv2(mirror, "val")
