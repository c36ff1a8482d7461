import os
import subprocess
import sys

import pytest

from cli.main import COMMANDS, main


@pytest.mark.parametrize("words", [["--help"], [], ["--version"], ["fitt"], ["--fit"]])
def test_help_and_typing_mistakes_import_no_torch(words):
    code = (
        "import sys\nfrom cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'lightning', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_lists_every_command(capsys):
    main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in COMMANDS)


def test_unknown_command_names_the_nearest(capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["fitt"])
    assert leaving.value.code == 2
    assert "did you mean fit?" in capsys.readouterr().err


def test_report_of_a_missing_folder_is_one_line(capsys, tmp_path):
    with pytest.raises(SystemExit) as leaving:
        main(["report", str(tmp_path / "nothing")])
    assert leaving.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["data", "check", "--help"]])
def test_a_reader_who_has_left_is_no_error(words):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        command = [sys.executable, "-c", f"from cli.main import main; main({words!r})"]
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, check=False)
    assert done.returncode in (0, 141) and not done.stderr
