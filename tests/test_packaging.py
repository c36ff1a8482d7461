"""The five folders are ours alone, and a wheel holds all that is needed to run."""

import subprocess
import sys
import zipfile
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

FOLDERS = ("qpriv", "lightning_modules", "callbacks", "datamodules", "cli")
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_is_ours_alone(folder):
    # a set: an .egg-info in the repository's root makes the name appear twice
    assert set(packages_distributions()[folder]) == {"qpriv"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_is_imported_from_here(folder):
    assert Path(str(import_module(folder).__file__)) == ROOT / folder / "__init__.py"


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_says_that_it_is_typed(folder):
    assert (ROOT / folder / "py.typed").is_file()


def test_every_test_folder_is_a_package():
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.slow
def test_wheel_holds_weights_and_configurations(tmp_path):
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder, pattern in (
        ("qpriv/models/tiny", "*/*.safetensors"),
        ("qpriv/models/tiny", "*/*.json"),
        ("qpriv/reporting/templates", "*"),
        ("cli/configs", "**/*.yaml"),
    ):
        files = [path for path in (ROOT / folder).glob(pattern) if path.is_file()]
        assert files
        assert {path.relative_to(ROOT).as_posix() for path in files} <= inside
    assert not [name for name in inside if name.startswith("tests/")]
    sources = {
        path.relative_to(ROOT).as_posix() for f in FOLDERS for path in (ROOT / f).rglob("*.py")
    }
    assert sources <= inside
