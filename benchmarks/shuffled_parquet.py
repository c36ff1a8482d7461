"""``python -m benchmarks.shuffled_parquet``: pictures of a parquet file, in order and shuffled.

Each order is read by a process of its own, so that nothing is laid out when it begins.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qpriv.datasets.files import DiskFile
from qpriv.datasets.parquet import ParquetImage


def write(path: Path, groups: int, rows: int, size: int) -> None:
    """Write row groups of cells of random bytes, which nothing compresses."""
    rng, schema = np.random.default_rng(0), pa.schema({"image": pa.struct({"bytes": pa.binary()})})
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(groups):
            cells = [{"bytes": rng.bytes(size)} for _ in range(rows)]
            writer.write_table(pa.table({"image": cells}, schema))


def read(path: Path, shuffled: bool) -> float:
    """Return the seconds in which every cell is read once."""
    metadata = pq.ParquetFile(path).metadata
    groups = range(metadata.num_row_groups)
    order = [(group, row) for group in groups for row in range(metadata.row_group(group).num_rows)]
    if shuffled:
        random.Random(0).shuffle(order)
    start, file = time.perf_counter(), DiskFile(path)
    for group, row in order:
        ParquetImage(file, group, row).data()
    return time.perf_counter() - start


def main() -> None:
    """Print the seconds of both orders for row groups of 6 and of 100 MB."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--shuffled", action="store_true")
    given = parser.parse_args()
    if given.read:
        print(read(given.read, given.shuffled))
        return
    for rows in (100, 1600):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pictures.parquet"
            write(path, given.groups, rows, 64_000)
            words = [sys.executable, "-m", "benchmarks.shuffled_parquet", "--read", str(path)]
            seconds = [
                float(subprocess.run([*words, *more], capture_output=True, check=True).stdout)
                for more in ([], ["--shuffled"])
            ]
            print(f"{given.groups} row groups of {rows * 0.064:.0f} MB: in order {seconds[0]:.2f} s,"
                  f" shuffled {seconds[1]:.2f} s, {seconds[1] / seconds[0]:.1f} times")  # fmt: skip


if __name__ == "__main__":
    main()
