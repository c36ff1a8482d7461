import io
import json
import random
import tracemalloc

import msgspec
import pytest

from qpriv.datasets import json_stream
from qpriv.datasets.files import DiskFile
from qpriv.datasets.json_stream import iter_records
from qpriv.errors import DataError


class Record(msgspec.Struct):
    q: str
    n: int = 0


class Memory:
    """A file in memory."""

    def __init__(self, data):
        self.name, self._data = "memory.json", data

    def open(self):
        return io.BytesIO(self._data)


def records(count, rng):
    """Return records whose skipped fields hold braces, brackets, commas and quotes."""
    nasty = ['},{"', '"]}', "\\", "}, {", '{"q": 1},', "é中"]
    return [
        {
            "q": rng.choice(nasty) + str(index),
            "skipped": {"a": [{"b": rng.choice(nasty)}, [[]]], "c": {}},
            "n": index,
            "tail": [{"x": {}}, rng.choice(nasty)],
        }
        for index in range(count)
    ]


@pytest.fixture(autouse=True, params=[64, 700, 1 << 22])
def _block(request, monkeypatch):
    monkeypatch.setattr(json_stream, "_BLOCK", request.param)
    monkeypatch.setattr(json_stream, "_TAIL", 48)


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_every_layout_equals_json_load(count, indent):
    rows = records(count, random.Random(count))
    wanted = [(row["q"], row["n"]) for row in rows]
    keyed = {f"00{index}": row for index, row in enumerate(rows)}
    header = {"info": {"a": [1]}, "rows": rows, "license": {"b": ["]"]}}
    for content, array in ((rows, None), (keyed, None), (header, "rows"), (rows, "rows")):
        data = json.dumps(content, indent=indent, ensure_ascii=False).encode()
        found = list(iter_records(Memory(b"\n " + data + b"\n"), Record, array=array))
        assert [(record.q, record.n) for _, record in found] == wanted
        names = list(keyed) if content is keyed else [str(index) for index in range(count)]
        assert [key for key, _ in found] == names


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.999])
def test_a_file_that_ends_early_is_an_error_in_every_layout(cut):
    rows = records(40, random.Random(0))
    for content, array in ((rows, None), ({"a": rows[0], "b": rows[1]}, None), ({"r": rows}, "r")):
        data = json.dumps(content).encode()
        with pytest.raises(DataError, match=r"memory\.json"):
            list(iter_records(Memory(data[: int(cut * len(data))]), Record, array=array))


def test_a_wrong_record_is_named_by_position_or_key():
    rows = records(40, random.Random(0))
    rows[23]["n"] = "many"
    with pytest.raises(DataError, match=r"got `str`.*record 23"):
        list(iter_records(Memory(json.dumps(rows).encode()), Record))
    keyed = {f"k{index}": row for index, row in enumerate(rows)}
    with pytest.raises(DataError, match=r"got `str`.*record k23"):
        list(iter_records(Memory(json.dumps(keyed).encode()), Record))


@pytest.mark.parametrize("content", [b"[1, 2]", b"7", b'{"other": []}', b"[{]", b"\xff\xfe[{}]"])
def test_what_is_no_array_of_records_is_an_error(content):
    with pytest.raises(DataError, match="memory"):
        list(iter_records(Memory(content), Record, array="rows"))


def test_a_few_blocks_are_in_memory_at_a_time(monkeypatch, tmp_path):
    monkeypatch.setattr(json_stream, "_BLOCK", 1 << 16)
    path = tmp_path / "big.json"
    path.write_text(json.dumps(records(20_000, random.Random(0))))
    tracemalloc.start()
    count = sum(1 for _ in iter_records(DiskFile(path), Record))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 20 * (1 << 16) < path.stat().st_size
