"""One rendered page for all tests that read it."""

from pathlib import Path

import pytest

from qpriv.reporting import write_report

from . import fakes


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory):
    return fakes.write_study(tmp_path_factory.mktemp("study"), seeds=(0, 1, 2))


@pytest.fixture(scope="session")
def page(study_folder, tmp_path_factory) -> str:
    return write_report([study_folder], tmp_path_factory.mktemp("report")).read_text()


@pytest.fixture
def run_folder(tmp_path) -> Path:
    return fakes.write_run(tmp_path / "run", fakes.policy_results("off", seed=0))
