"""Configurations laid over one another: the last word holds, and nothing is mixed in silently."""

import pytest
import yaml

from cli.main import main

FIRST = """
trainer:
  callbacks:
    - {class_path: ForaProbe, init_args: {steps: 77}}
    - {class_path: SensitivityProbe}
"""
SECOND = """
trainer:
  callbacks:
    - {class_path: ForaProbe}
    - {class_path: MembershipProbe}
"""


@pytest.fixture
def read(tmp_path, capsys):
    """Return the callbacks that some layers end in: class names and steps."""

    def read(*layers: str, words: tuple[str, ...] = ()) -> list[tuple[str, int | None]]:
        files = [tmp_path / f"{number}.yaml" for number in range(len(layers))]
        for file, layer in zip(files, layers, strict=True):
            file.write_text(layer)
        given = [f"--config={file}" for file in files]
        with pytest.raises(SystemExit) as leaving:
            main(["fit", "--config=tiny/vqa.yaml", *given, *words, "--print_config"])
        assert not leaving.value.code
        callbacks = yaml.safe_load(capsys.readouterr().out)["trainer"]["callbacks"]
        return [
            (each["class_path"].rpartition(".")[2], each["init_args"].get("steps"))
            for each in callbacks
        ]

    return read


def test_a_second_list_of_probes_takes_the_place_of_the_first_whole(read):
    assert read(FIRST, SECOND) == [("ForaProbe", 600), ("MembershipProbe", None)]


def test_a_list_that_a_later_file_does_not_name_stays(read):
    assert read(FIRST, "trainer: {max_epochs: 2}") == [
        ("ForaProbe", 77),
        ("SensitivityProbe", None),
    ]


def test_a_list_with_a_plus_is_appended(read):
    appended = SECOND.replace("callbacks:", "callbacks+:")
    assert read(FIRST, appended) == [
        ("ForaProbe", 77),
        ("SensitivityProbe", None),
        ("ForaProbe", 600),
        ("MembershipProbe", None),
    ]


def test_a_later_class_keeps_no_list_of_the_earlier_one(tmp_path, capsys):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(
        "model: {init_args: {paradigm: {class_path: UShapedSplit, init_args: {cuts: [2, 6]}}}}"
    )
    second.write_text("model: {init_args: {paradigm: {class_path: Federated}}}")
    with pytest.raises(SystemExit) as leaving:
        main(["fit", "--config=tiny/vqa.yaml", f"-c={first}", f"-c={second}", "--print_config"])
    assert not leaving.value.code
    paradigm = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]["paradigm"]
    assert paradigm["class_path"].endswith("Federated")
    assert "cuts" not in paradigm["init_args"]


def test_the_command_line_changes_a_single_argument_of_a_file(read):
    single = "trainer: {callbacks: [{class_path: ForaProbe, init_args: {seed: 3}}]}"
    words = ("--trainer.callbacks.steps=5",)
    assert read(single, words=words) == [("ForaProbe", 5)]
