"""``qpriv dashboard``: how a W&B project shows utility, leaks and cost, side by side by epoch."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from qpriv.attacks.registry import attacks
from qpriv.errors import ConfigError
from qpriv.metrics.answers import ACCURACY, LOSSES
from qpriv.quantity import Quantity
from qpriv.reporting.quantities import answers, headlines, leaks
from qpriv.split.traffic import EXCHANGED, PASSED, SENT

from .errors import command_parser

if TYPE_CHECKING:
    import wandb_workspaces.workspaces as ws

Panels = Mapping[str, Sequence[str]]
"""Names of metrics by the title of the panel that shows them."""


def run(words: Sequence[str]) -> None:
    """Print the workspace's specification, or push it.

    Args:
        words: ``dashboard`` and its arguments.

    Raises:
        ConfigError: If the package that makes workspaces is missing, or W&B refuses it.
    """
    parser = command_parser(
        "dashboard", "Describe a W&B workspace of the runs of a project; nothing is sent."
    )
    parser.add_argument("--entity", default="", help="W&B user or team; default: your own")
    parser.add_argument("--project", default="qpriv", help="W&B project")
    parser.add_argument("--push", action="store_true", help="save it at W&B, which needs a login")
    given = parser.parse_args(words[1:])
    if find_spec("wandb_workspaces") is None:
        raise ConfigError(
            "wandb-workspaces is not installed", remedy="pip install 'qpriv[dashboard]'"
        )
    made = workspace(given.entity, given.project)
    print(push(made) if given.push else json.dumps(specification(made)))


def utility() -> Panels:
    """Return what is answered and what it costs, by name of panel."""
    losses = tuple(_logged(own) for own in LOSSES)
    shown = [own for own in headlines() if own.direction != "leak"]
    sent = {
        f"{group[0].title}, {group[1].title.lower()}": tuple(map(_logged, group))
        for group in (tuple(each.values()) for each in (SENT, PASSED, EXCHANGED))
    }
    return {own.short: (_logged(own),) for own in shown} | {"Loss": losses} | sent


def leaking() -> Panels:
    """Return the headline figures of what leaks, of every attacker, beside what each is held against."""
    return {own.axis: tuple(dict.fromkeys((*_beside(own), *answers(own)))) for own in leaks()}


def by_attack() -> dict[str, Panels]:
    """Return for each attack the leaks of its main table."""
    shown = {
        attack.title: {
            own.title: _beside(own)
            for own in attack.figures
            if own.leading and own.direction == "leak"
        }
        for attack in attacks()
    }
    return {title: panels for title, panels in shown.items() if panels}


def _beside(own: Quantity) -> tuple[str, ...]:
    return (_logged(own), *((own.baseline,) if own.baseline else ()))


def _logged(own: Quantity) -> str:
    return own.logged or own.name


def workspace(entity: str, project: str) -> "ws.Workspace":
    """Return the workspace: what is answered and sent, what leaks, and one against the other."""
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces.reports.v2.interface import LinePlot, ScatterPlot

    def lines(panels: Panels) -> list[LinePlot]:
        return [LinePlot(title=title, x="epoch", y=list(names)) for title, names in panels.items()]

    trade = [
        ScatterPlot(
            title=f"{ACCURACY.title} against {own.axis}", x=_logged(own), y=_logged(ACCURACY)
        )
        for own in leaks()
    ]
    first: dict[str, list[LinePlot] | list[ScatterPlot]] = {
        "Utility and cost": lines(utility()),
        "What leaks": lines(leaking()),
        "Utility against privacy": trade,
    }
    more = {title: lines(panels) for title, panels in by_attack().items()}
    return ws.Workspace(
        entity=entity,
        project=project,
        name="qpriv: utility, leaks, cost",
        sections=[
            ws.Section(name=name, panels=[*panels], is_open=name in first)
            for name, panels in (first | more).items()
        ],
        settings=ws.WorkspaceSettings(x_axis="epoch"),
    )


def specification(made: "ws.Workspace") -> dict[str, Any]:
    """Return what W&B would be sent."""
    # the package has no public way to see a workspace that was not saved
    found: dict[str, Any] = json.loads(made._to_model().model_dump_json(by_alias=True))
    return found


def push(made: "ws.Workspace") -> str:
    """Save a workspace at W&B and return its address.

    Raises:
        ConfigError: If W&B refuses it.
    """
    try:
        made.save()  # type: ignore[no-untyped-call]
    except Exception as error:  # of many kinds: no login, no network, no such project
        raise ConfigError(
            f"W&B did not take the workspace: {error}",
            where="--push",
            remedy="wandb login, and check --entity and --project",
        ) from error
    return str(made.url)
