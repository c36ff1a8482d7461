"""What of a model is trained, part by part: a fit begins with it, so that nothing trains unseen."""

from collections import Counter

from torch import nn

# what a part's name is wrapped in by PEFT, by our models and by transformers
_WRAPPERS = {"model", "llava", "base_model", "network", "base", "predictor"}


def inventory(module: nn.Module) -> str:
    """Return a table of parts with their trained and frozen parameters, and their sums.

    >>> layers = nn.ModuleDict({"tower": nn.Linear(9, 9), "head": nn.Linear(9, 1, bias=False)})
    >>> _ = layers["tower"].requires_grad_(False)
    >>> print(inventory(layers))
    parameters         trained           frozen
    tower                    0               90
    head                     9                0
    all                      9               90
    """
    trained, frozen = Counter[str](), Counter[str]()
    for name, parameter in module.named_parameters():
        kind, other = (trained, frozen) if parameter.requires_grad else (frozen, trained)
        kind[part_of(name)] += size_of(parameter)
        other[part_of(name)] += 0
    rows = [(name, trained[name], frozen[name]) for name in trained]
    rows.append(("all", trained.total(), frozen.total()))
    width = max(10, *(len(name) for name, *_ in rows))
    lines = [f"{'parameters':<{width}}{'trained':>16}{'frozen':>17}"]
    lines += [f"{name:<{width}}{own:>16,}{rest:>17,}" for name, own, rest in rows]
    return "\n".join(lines)


def part_of(name: str) -> str:
    """Return the part of a model that a parameter belongs to.

    >>> part_of("model.llava.base_model.model.model.language_model.layers.0.mlp.up_proj.weight")
    'language_model'
    """
    path = name.split(".")
    return next((word for word in path if word not in _WRAPPERS), path[-1])


def size_of(parameter: nn.Parameter) -> int:
    """Return the number of values of a parameter, of which nf4 packs two in a byte."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else int(state.shape.numel())
