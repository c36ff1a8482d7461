import io
import json
import random
import tracemalloc

import msgspec
import pytest

from qpriv.datasets import encodings, json_stream
from qpriv.datasets import records as question_files
from qpriv.datasets.files import DiskFile
from qpriv.datasets.records import iter_records
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
    monkeypatch.setattr(encodings, "_BLOCK", request.param)
    monkeypatch.setattr(question_files, "_FIRST_LINE", request.param)
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
    monkeypatch.setattr(encodings, "_BLOCK", 1 << 16)
    path = tmp_path / "big.json"
    path.write_text(json.dumps(records(20_000, random.Random(0))))
    tracemalloc.start()
    count = sum(1 for _ in iter_records(DiskFile(path), Record))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 20 * (1 << 16) < path.stat().st_size


def said(data, record=Record, **options):
    with pytest.raises(DataError) as caught:
        list(iter_records(Memory(data), record, **options))
    assert caught.value.remedy and "download" not in caught.value.remedy
    return str(caught.value)


@pytest.mark.parametrize("array", [None, "rows"])
@pytest.mark.parametrize("wrong", [0, 25, 39])
def test_latin_1_is_named_with_the_record(array, wrong):
    rows = [{"q": "café" if number == wrong else "cafe"} for number in range(40)]
    content = {"info": "", "rows": rows, "license": []} if array else rows
    data = json.dumps(content, ensure_ascii=False).encode("latin-1")
    told = said(data, array=array)
    assert "byte 0xe9, in Latin-1 'é'" in told and f"memory.json, record {wrong}" in told
    assert "iconv -f LATIN1" in told


def test_a_byte_order_mark_is_passed_over():
    rows = [{"q": "a"}, {"q": "b"}]
    for content, array in ((rows, None), ({"k": rows[0]}, None), ({"rows": rows}, "rows")):
        data = json.dumps(content).encode("utf-8-sig")
        assert next(iter_records(Memory(data), Record, array=array))[1].q == "a"


@pytest.mark.parametrize("depth", [2_000])
def test_brackets_in_brackets_are_one_error(depth):
    for deep in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "[" * depth):
        for start in ('[{"q": "a", "n": ', '[{"q": "a"}, {"x": ', "["):
            with pytest.raises(DataError, match=r"memory\.json"):
                list(iter_records(Memory(f"{start}{deep}}}]".encode()), Record))


def test_what_follows_the_records_may_hold_any_brackets():
    more = [[number] for number in range(500)]
    data = json.dumps({"rows": [{"q": "a"}], "more": more, "last": {"a": [more]}}).encode()
    assert [record.q for _, record in iter_records(Memory(data), Record, array="rows")] == ["a"]
    with pytest.raises(DataError, match="memory"):
        list(iter_records(Memory(data[:-1] + b"]" * 5000), Record, array="rows"))
