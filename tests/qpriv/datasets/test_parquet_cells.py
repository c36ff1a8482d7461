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
    assert not Path(folder).exists()
