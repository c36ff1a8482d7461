"""The five folders are ours alone, and a wheel holds all that is needed to run."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

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


def test_hooks_before_a_commit_are_what_the_tests_check_first():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    recipe = (ROOT / "Makefile").read_text().partition("\ntest: ")[2].partition("pytest")[0]
    for hook in hooks:
        tool = hook["entry"].removeprefix(".venv/bin/").replace(" --force-exclude", "")
        assert f"$(BIN)/{tool}" in recipe
    assert len(hooks) == 3


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, Path]:
    """A source distribution of a copy of this repository, and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("built")
    for name in ours("**/*"):
        (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / "copy" / name)
    pack = "from setuptools.build_meta import build_sdist; import sys; build_sdist(sys.argv[1])"
    run([sys.executable, "-c", pack, str(folder)], folder / "copy")
    (source,) = folder.glob("*.tar.gz")
    wheel = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    run([sys.executable, "-m", "pip", *wheel, str(source)], folder)
    return {"sdist": source, "wheel": next(folder.glob("*.whl"))}


def run(words: list[str], folder: Path) -> str:
    """Run a command somewhere, where nothing but what is installed can be imported."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_wheel_holds_weights_and_configurations(built):
    inside = set(zipfile.ZipFile(built["wheel"]).namelist())
    for folder, pattern in (
        ("qpriv/models/tiny", "*/*.safetensors"),
        ("qpriv/models/tiny", "*/*.json"),
        ("qpriv/reporting/templates", "*"),
        ("cli/configs", "**/*.yaml"),
    ):
        files = ours(f"{folder}/{pattern}")
        assert files and files <= inside
    assert not [name for name in inside if name.startswith("tests/")]
    assert {name for folder in FOLDERS for name in ours(f"{folder}/**/*.py")} <= inside


def ours(pattern: str) -> set[str]:
    """Return the repository's files, relative to it; no build output is among them."""
    if not (ROOT / ".git").exists():  # an unpacked release holds nothing else, but what ran here
        made = (".", "build/", "dist/", "runs/", "qpriv.egg-info/")
        found = [path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern) if path.is_file()]
        return {name for name in found if not name.startswith(made) and "__pycache__" not in name}
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", f":(glob){pattern}"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_installed_elsewhere_runs_the_demo(kind, built, tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    here, there = (sysconfig.get_path("purelib", vars=v) for v in (None, base(tmp_path / "venv")))
    # the dependencies of this environment, and not its editable qpriv: a path alone runs no hook
    (Path(there) / "dependencies.pth").write_text(here)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--ignore-installed"]
    run([python, "-m", "pip", *install, str(built[kind])], tmp_path)
    qpriv = str(tmp_path / "venv" / "bin" / "qpriv")
    where = run([python, "-c", "import qpriv; print(qpriv.__file__)"], tmp_path)
    assert where.startswith(str(tmp_path))
    assert "usage: qpriv COMMAND" in run([qpriv, "--help"], tmp_path)
    said = run([qpriv, "study", "--config", "study/demo.yaml", "--fast", "--out", "out"], tmp_path)
    assert "4 of 4 runs are done." in said and "Failed" not in said
    assert (tmp_path / "out" / "report.html").is_file()


def base(prefix: Path) -> dict[str, str]:
    """Return the variables of `sysconfig` for an environment elsewhere."""
    return {"base": str(prefix), "platbase": str(prefix)}
