"""Figures of document models on the one report, and in a terminal."""

import re

import pytest

from qpriv.reporting import write_report
from qpriv.reporting.evidence import Evidence
from qpriv.reporting.run_folder import find_runs, read_run
from qpriv.reporting.tables import document_tables
from qpriv.reporting.text import format_evidence

from . import fakes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fakes.write_document_study(tmp_path_factory.mktemp("documents"))


@pytest.fixture(scope="module")
def evidence(folder):
    return Evidence.of([read_run(run) for run in find_runs([folder])])


def cells(table):
    return {
        (row.header, column.title): cell.text
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
    }


def test_a_model_is_a_row_and_a_setting_never_hides_another(evidence):
    sizes, *others = document_tables(evidence, "FakeDocuments")
    found = cells(sizes)
    assert found["f · resolution 0.5", "M = E - G"] == "20"
    assert found["f_EB · resolution 0.5 · extraction blocking", "M = E - G"] == "0"
    captions = [table.caption for table in others]
    assert len(captions) == len(set(captions))


def test_columns_are_the_values_of_a_setting_in_their_order(evidence):
    tables = {table.caption: table for table in document_tables(evidence, "FakeDocuments")}
    times = tables["M by repetitions in training"]
    assert [column.title for column in times.columns] == ["1", "2", "10"]
    assert cells(times)["f · resolution 0.5", "10"] == "2"
    kinds = tables["M by kind of information"]
    assert {column.title for column in kinds.columns} == {"person", "contact"}
    assert cells(tables["Canaries over trainings on halves of them"])


def test_without_document_models_there_is_no_table():
    results = fakes.policy_results("off", seed=0)
    assert document_tables(Evidence.gathered(results), "FaceScenes") == []


def test_the_page_shows_tables_and_histograms_and_nothing_twice(folder, tmp_path):
    page = write_report([folder], tmp_path).read_text()
    titles = re.findall(r"<figcaption><strong>(.*?)\.</strong>", page)
    assert [title.split(",")[0] for title in titles] == ["all canaries", "E - G", "G"]
    assert "4 canaries: 3 with memorisation from 0.0 and simplicity from 0.0" in page
    assert page.count("Answers that come out of erased pages") == 1
    assert "Other figures of the runs" not in page, "every figure stands in a table of its own"
    assert "pruning policy drops" not in page


def test_the_terminal_shows_the_sizes(evidence):
    table = format_evidence(evidence)
    assert "M = E - G" in table and "f_EB" in table and "20 [15" in table
