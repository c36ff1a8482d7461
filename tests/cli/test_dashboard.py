"""The W&B workspace is built and checked without network, and pushed on request alone."""

import json
import socket

import pytest

from cli import dashboard
from cli.main import main
from qpriv.reporting.quantities import ATTACK_QUANTITIES, POLICY_QUANTITIES

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


def test_panels_show_what_runs_measure():
    known = {each.name for each in (*ATTACK_QUANTITIES, *POLICY_QUANTITIES)}
    shown = {name for names in dashboard.LEAKS.values() for name in names} | set(dashboard.TRADE)
    assert shown <= known


def test_a_push_without_network_is_told_in_a_few_lines(monkeypatch, capsys):
    def refuse(self):
        raise OSError("no route to host")

    monkeypatch.setattr("wandb_workspaces.workspaces.Workspace.save", refuse)
    with pytest.raises(SystemExit) as leaving:
        main(["dashboard", "--push"])
    told = capsys.readouterr().err
    assert leaving.value.code == 2
    assert "no route to host" in told and "wandb login" in told
