"""Question files that are no JSON in UTF-8: read where they hold the same fields, else named."""

import csv
import gzip
import io
import json

import msgspec
import pytest

from qpriv.datasets import encodings
from qpriv.datasets.conversations import Conversations
from qpriv.datasets.documents.docvqa import DocVQA
from qpriv.datasets.gqa import GQA
from qpriv.datasets.records import iter_records
from qpriv.datasets.report import DataReport
from qpriv.datasets.slake import SLAKE
from qpriv.datasets.vqav2 import VQAv2
from qpriv.errors import DataError
from tests.data import pictures
from tests.data.gqa import data as gqa
from tests.data.slake import data as slake
from tests.data.vqav2 import data as vqav2


class Record(msgspec.Struct):
    q: str
    n: int = 0
    more: list[str] | str | None = None


class Memory:
    """A file in memory."""

    def __init__(self, data, name="memory.json"):
        self.name, self._data = name, data
        self.packed_size = len(data)

    def open(self):
        return io.BytesIO(self._data)


ROWS = [
    {"q": 'a, "quoted"\nsecond line; é中', "n": 3, "more": ["x", "y"]},
    {"q": "b\ttab", "skipped": {"a": [{}]}, "n": 0, "more": "one"},
    {"q": "[c]", "n": -1},
]
WANTED = [(row["q"], row["n"], row.get("more")) for row in ROWS]


def lines(rows=ROWS):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def table(rows=ROWS, delimiter=","):
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, delimiter=delimiter)
    writer.writeheader()
    for row in rows:
        nested = {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in row.items()}
        writer.writerow(nested)
    return text.getvalue()


FORMS = {
    "JSON": json.dumps(ROWS, ensure_ascii=False),
    "JSON Lines": lines(),
    "CSV": table(),
    "semicolons": table(delimiter=";"),
    "TSV": table(delimiter="\t"),
}


def read(data, record=Record, **options):
    report = DataReport("A set", "train")
    found = list(iter_records(Memory(data), record, report=report, **options))
    return found, report


@pytest.mark.parametrize("block", [64, 1 << 22])
@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("array", [None, "rows"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_every_encoding_holds_the_same_records(
    form, array, codec, block, monkeypatch
):
    monkeypatch.setattr(encodings, "_BLOCK", block)
    found, report = read(FORMS[form].encode(codec), array=array)
    assert [(one.q, one.n, one.more) for _, one in found] == WANTED
    assert [key for key, _ in found] == ["0", "1", "2"]
    assert ("UTF-" in "".join(report.notes)) == (codec[:5] != "utf-8")
    told = {"JSON": "", "JSON Lines": "JSON Lines"}.get(form, "table with the columns q, n, more")
    assert told in "".join(report.notes)


@pytest.mark.parametrize("form", FORMS)
def test_a_bad_row_is_named_by_its_line_or_left_out(form):
    text = FORMS[form].replace("-1", "many")
    with pytest.raises(DataError, match=r"memory\.json, (record 2|line [35])\).*on_bad_row"):
        read(text.replace(" many", ' "many"').encode())
    report = DataReport("A set", "train", "drop")
    data = text.replace(" many", ' "many"').encode()
    assert len(list(iter_records(Memory(data), Record, report=report))) == 2
    assert report.bad_rows == report.read == 1


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (lines()[:-9].encode(), "not JSON.*line 3"),
        (b'{"q": "a"}\n{"q": }\n', "not JSON.*line 2"),
        (lines().encode("latin-1", "replace"), "0xe9, in Latin-1 'é'.*line 1"),
        (table().encode("latin-1", "replace"), "0xe9, in Latin-1 'é'.*line 3"),
        (b"question,answer\nwhy?,so\n", r"columns question, answer, where .* q are wanted.*line 1"),
        (b"q,q\na,b\n", "each once"),
        ("q;n;größe\na;1;b\n".encode("latin-1"), "0xf6, in Latin-1 'ö'.*line 1"),
        (b"x," * 9999, r"columns x, x, (x, )+x?,?\.\.\., where JSON records with q are"),
        (b"q,n\na,b,1\n", "3 cells in a table of 2 columns.*line 2"),
        (b"q,n\na\n", "1 cells in a table of 2 columns.*line 2"),
        (b"q,more\na,\"['x']\"\n", "column more.*line 2"),
        (b'q,n\n"a,1\nb,2\n', "not a table"),
        ("[]".encode("utf-16")[:-1], "UTF-16 that is damaged"),
        (b'{\n "q": "a"\n}\n{\n "q": "b"\n}\n', r"not JSON.*`jq -s \. FILE"),
        (b"just text", "not a JSON file with records"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(data, told):
    with pytest.raises(DataError, match=told) as caught:
        read(data)
    assert "memory.json" in str(caught.value) and caught.value.remedy
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("text", ["\tq\tn\n0\ta\t1\n", "q\tn\t\na\t1\t\n", "\n \r\nq;n\n\na;1.0\n"])
def test_a_table_may_have_columns_without_a_name_blank_lines_and_whole_numbers_as_floats(text):
    found, report = read(text.encode())
    assert [(one.q, one.n) for _, one in found] == [("a", 1)] and not report.bad_rows


def test_one_line_is_json_lines_only_if_it_is_a_record():
    assert [one.q for _, one in read(b'{"q": "a"}')[0]] == ["a"]
    assert [one.q for _, one in read(b'{"rows": [{"q": "a"}]}', array="rows")[0]] == ["a"]
    assert [key for key, _ in read(b'{"7": {"q": "a"}}')[0]] == ["7"]


def conversations(root):
    pictures.save(root / "a.jpg", 1)
    turns = [{"from": "human", "value": "<image> what?"}, {"from": "gpt", "value": "a mass"}]
    return [
        {"id": f"r{n}", "image": "a.jpg", "conversations": turns, "patient_id": n} for n in range(2)
    ]


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "json.gz"])
def test_own_records_in_any_form(tmp_path, ending):
    rows = conversations(tmp_path)
    text = table(rows) if ending == "csv" else lines(rows)
    data = gzip.compress(text.encode()) if ending == "json.gz" else text.encode("utf-8-sig")
    (tmp_path / f"train.{ending}").write_bytes(data)
    split = Conversations(tmp_path, "train")
    assert [(one.qid, one.answer) for one in split.samples] == [("r0", "a mass"), ("r1", "a mass")]
    assert split.report.grouped_by == {"patient_id": 2}
    notes = "; ".join(split.report.notes)
    assert ("JSON Lines" in notes or "a table" in notes) and "read" in notes
    assert ("there is no train.json" in notes) == (ending in ("jsonl", "csv"))


def test_a_table_of_questions_and_answers_is_no_conversation(tmp_path):
    (tmp_path / "train.csv").write_text("image,question,answer\na.jpg,what?,a mass\n")
    with pytest.raises(DataError, match=r"columns image, question, answer.*image, conversations"):
        Conversations(tmp_path, "train")


def test_the_vqa_sets_read_the_same_forms(tmp_path):
    for name in ("slake", "vqav2", "gqa"):
        (tmp_path / name).mkdir()
    root = slake.write_release(tmp_path / "slake")
    want = SLAKE(root).samples
    rows = slake.records("train")
    for text in (lines(rows), table(rows), table(rows, "\t")):
        (root / "train.json").write_text(text, encoding="utf-16")
        assert SLAKE(root).samples == want
    root = vqav2.write_release(tmp_path / "vqav2")
    want = VQAv2(root).samples
    for path, array in ((next(root.rglob("*train*questions*")), "questions"),
                        (next(root.rglob("*train*annotations*")), "annotations")):  # fmt: skip
        path.write_text(lines(json.loads(path.read_text())[array]))
        assert VQAv2(root).samples == want
    root = gqa.write_release(tmp_path / "gqa")
    want, path = GQA(root).samples, next(root.rglob("train_balanced_questions.json"))
    path.write_text(lines([{"id": k} | v for k, v in json.loads(path.read_text()).items()]))
    assert GQA(root).samples == want


def test_document_sets_read_the_same_forms(tmp_path):
    pictures.save(tmp_path / "page_1.png", 1)
    row = {"questionId": 1, "image": "documents/page_1.png", "question": "who?", "docId": 7}
    for answers in (["Acme", "ACME"], "Acme"):
        rows = [row | {"answers": answers, "question_types": ["form"]}]
        for text in (json.dumps({"data": rows}), lines(rows), table(rows)):
            (tmp_path / "train_v1.0.json").write_text(text)
            (sample,) = DocVQA(tmp_path).samples
            assert sample.answers == (("Acme", "ACME") if answers != "Acme" else ("Acme",))
            assert sample.meta["question_type"] == "form" and sample.group_id == "7"
