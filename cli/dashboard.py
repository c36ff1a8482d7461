"""``qpriv dashboard``: how a W&B project shows utility, leaks and cost, side by side by epoch."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from qpriv.errors import ConfigError

from .errors import command_parser

if TYPE_CHECKING:
    import wandb_workspaces.workspaces as ws

UTILITY = {
    "Accuracy": ("val/accuracy",),
    "Loss": ("train/loss", "val/loss"),
    "Visual tokens kept": ("kept_tokens",),
    "Bytes a sample": ("bytes_up", "bytes_down"),
}
LEAKS = {
    "Face reconstruction, dB": ("attack/fora/psnr_sensitive", "attack/fora/floor_mean_face"),
    "Image reconstruction, dB": ("attack/fora/psnr", "attack/fora/floor_mean_image"),
    "Faces found first": ("attack/fora/reid_top1",),
    "Sensitive tokens kept": ("sensitive_tokens_kept",),
    "Membership, AUC": ("attack/membership/auc", "attack/membership/blind_auc"),
    "Membership, TPR at 1 % FPR": ("attack/membership/tpr_at_1_fpr",),
}
TRADE = ("attack/fora/psnr_sensitive", "attack/membership/auc")


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


def workspace(entity: str, project: str) -> "ws.Workspace":
    """Return the workspace: what is answered and sent, what leaks, and one against the other."""
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces.reports.v2.interface import LinePlot, ScatterPlot

    def lines(plots: Mapping[str, Sequence[str]]) -> list[LinePlot]:
        return [LinePlot(title=title, x="epoch", y=list(names)) for title, names in plots.items()]

    sections: dict[str, list[LinePlot] | list[ScatterPlot]] = {
        "Utility and cost": lines(UTILITY),
        "What leaks": lines(LEAKS),
        "Utility against privacy": [
            ScatterPlot(title=f"Accuracy against {x}", x=x, y="val/accuracy") for x in TRADE
        ],
    }
    return ws.Workspace(
        entity=entity,
        project=project,
        name="qpriv: utility, leaks, cost",
        sections=[ws.Section(name=n, panels=[*p], is_open=True) for n, p in sections.items()],
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
