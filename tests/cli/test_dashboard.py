"""The W&B workspace is built and checked without network, and pushed on request alone."""

import json
import socket

import pytest

from cli import dashboard
from cli.main import main
from qpriv.reporting.quantities import headlines, leaks, quantities

pytest.importorskip("wandb_workspaces", reason="needs the extra dashboard")


@pytest.fixture
def offline(monkeypatch):
    def refuse(*_):
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def panels(spec):
    sections = spec["spec"]["section"]["panelBankConfig"]["sections"]
    return {section["name"]: section["panels"] for section in sections}


def test_every_panel_is_a_line_over_epochs_or_utility_against_a_leak(offline, capsys):
    main(["dashboard", "--entity", "hospital", "--project", "slake"])
    spec = json.loads(capsys.readouterr().out)
    found = panels(spec)
    lines = [*found["Utility and cost"], *found["What leaks"]]
    assert {panel["viewType"] for panel in lines} == {"Run History Line Plot"}
    assert {panel["config"]["xAxis"] for panel in lines} == {"epoch"}
    assert {p["viewType"] for p in found["Utility against privacy"]} == {"Scatter Plot"}


def test_panels_show_what_runs_measure_and_every_headline():
    logged = {own.logged or own.name for own in quantities().values()}
    groups = (dashboard.utility(), dashboard.leaking(), *dashboard.by_attack().values())
    shown = {name for panels in groups for names in panels.values() for name in names}
    assert shown <= logged
    assert {own.logged or own.name for own in headlines()} <= shown
    assert {names[0] for names in dashboard.leaking().values()} == {own.name for own in leaks()}


def test_every_attack_has_a_section_of_its_own(offline, capsys):
    main(["dashboard"])
    sections = panels(json.loads(capsys.readouterr().out))
    assert {*dashboard.by_attack()} <= {*sections}
    assert "Image reconstruction (FORA)" in sections and "Membership inference" in sections


def test_a_push_without_network_is_told_in_a_few_lines(monkeypatch, capsys):
    def refuse(self):
        raise OSError("no route to host")

    monkeypatch.setattr("wandb_workspaces.workspaces.Workspace.save", refuse)
    with pytest.raises(SystemExit) as leaving:
        main(["dashboard", "--push"])
    told = capsys.readouterr().err
    assert leaving.value.code == 2
    assert "no route to host" in told and "wandb login" in told
