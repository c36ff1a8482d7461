"""``qpriv merge``: a run's adapter made part of the weights it was trained on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from qpriv.errors import ConfigError

from .errors import command_parser


def run(words: Sequence[str]) -> None:
    """Write the merged model of a run, and say how far it is from the trained one.

    Args:
        words: ``merge`` and its arguments.
    """
    parser = command_parser("merge", "Make a run's adapter part of the weights.")
    parser.add_argument("run", type=Path, help="folder of a finished fit of a VQAModule")
    parser.add_argument("--out", type=Path, required=True, help="where the merged model goes")
    parser.add_argument(
        "--adapters", nargs="+", default=None, help="of parties: those that compute together"
    )
    given = parser.parse_args(words[1:])
    settings = settings_of(given.run)
    adapters = chosen(given.run / "adapter", given.adapters)
    from qpriv.models.llava.merging import merge_adapters
    from qpriv.models.registry import resolve_backbone

    base, quantization = resolve_backbone(settings["backbone"]).llava, settings["quantization"]
    found = merge_adapters(base, adapters, given.out, settings["dtype"], quantization)
    print(f"{', '.join(adapters)} merged: LlavaForConditionalGeneration.from_pretrained")
    print(f'  ("{given.out}", dtype="{settings["dtype"]}")')
    print(
        f"its logits differ from those as trained by at most {found.difference:.2g}, "
        f"where the largest is {found.largest:.2g}"
    )
    if quantization != "none":
        print(f"trained on {quantization} weights, merged into whole ones: hence the difference")


def settings_of(folder: Path) -> Mapping[str, Any]:
    """Return the settings of the model that a run trained.

    Raises:
        ConfigError: If it is no run of a `VQAModule`.
    """
    path = folder / "config.yaml"
    model = yaml.safe_load(path.read_text()).get("model", {}) if path.is_file() else {}
    if not str(model.get("class_path")).endswith("VQAModule"):
        raise ConfigError(
            "no run of a VQAModule", where=str(folder), remedy="give the folder that fit printed"
        )
    settings: Mapping[str, Any] = model["init_args"]
    return settings


def chosen(folder: Path, names: Sequence[str] | None) -> dict[str, Path]:
    """Return the adapters to merge: the run's one, or a server's and its first client's.

    Raises:
        ConfigError: If there is none of a name.
    """
    found = {path.parent.name: path.parent for path in sorted(folder.glob("*/adapter_config.json"))}
    if (folder / "adapter_config.json").is_file():
        found["default"] = folder
    own = [name for name in ("default", "server", "client0") if name in found]
    if missing := [name for name in names or own or ["default"] if name not in found]:
        raise ConfigError(
            f"there is no adapter {missing[0]}",
            where=str(folder),
            remedy=f"choose among {', '.join(found) or 'those of another run'}",
        )
    return {name: found[name] for name in names or own}
