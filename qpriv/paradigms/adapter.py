"""A LoRA adapter that is there for a while: trained beside the victim's, gone without a trace."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from peft import PeftModel

from qpriv.models.llava.quantization import Quantization, quantization_settings
from qpriv.models.llava.vision_language import VisionLanguageModel

from .recipe import LoraRecipe

SHADOW = "shadow"
"""Name of the adapter that is trained beside another one."""


def activate(model: VisionLanguageModel, adapters: Sequence[str]) -> None:
    """Make some adapters of a model the ones it computes with, and no others."""
    model.llava.base_model.set_adapter(list(adapters))
    model.llava.active_adapter = adapters[0]


def export_adapters(model: VisionLanguageModel, adapters: Sequence[str], folder: Path) -> None:
    """Write adapters as PEFT folders: ``default`` into the folder, others into one each."""
    for name in adapters:
        # the name a person can load it by, not the folder it was loaded from
        model.llava.peft_config[name].base_model_name_or_path = model.backbone.llava
    model.llava.save_pretrained(folder, selected_adapters=list(adapters))


def adapter_folder(folder: Path, name: str) -> Path:
    """Return where `export_adapters` wrote an adapter."""
    return folder if name == "default" else folder / name


def loading_lines(
    base: str,
    adapters: Sequence[str],
    folder: Path,
    dtype: str = "float32",
    quantization: Quantization = "none",
) -> list[str]:
    """Return Python that loads exported adapters without this package, all active as in training.

    Args:
        base: Name or folder of the base model.
        adapters: Those that compute together, such as the server's and one client's.
        folder: Where `export_adapters` wrote them.
        dtype: Type of the base's weights in training.
        quantization: Format of its quantised ones.
    """
    first, *others = [(name, adapter_folder(folder, name)) for name in adapters]
    names, how = "LlavaForConditionalGeneration", f'dtype="{dtype}"'
    if settings := quantization_settings(quantization, dtype):
        given = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        names += ", BitsAndBytesConfig"
        how += f", quantization_config=BitsAndBytesConfig({given})"
    lines = [
        f"from peft import PeftModel; from transformers import {names}",
        f'base = LlavaForConditionalGeneration.from_pretrained("{base}", {how})',
        f'model = PeftModel.from_pretrained(base, "{first[1]}", adapter_name="{first[0]}")',
        *(f'model.load_adapter("{place}", adapter_name="{name}")' for name, place in others),
    ]
    if others:
        names = ", ".join(f'"{name}"' for name in adapters)
        lines.append(f"model.base_model.set_adapter([{names}])")
    return lines


@contextmanager
def fresh_adapter(model: VisionLanguageModel, recipe: LoraRecipe, seed: int) -> Iterator[str]:
    """Give the model a new adapter, the only active and trainable one, and take it away again.

    Adapters that were there keep their weights and are inactive meanwhile. Afterwards flags,
    gradients, modes and the active adapter are what they were.

    Yields:
        The adapter's name.
    """
    flags = {name: (value.requires_grad, value.grad) for name, value in model.named_parameters()}
    modes = {name: module.training for name, module in model.named_modules()}
    # parties have adapters of their own, of which several are active at once
    before = list(model.llava.active_adapters) if isinstance(model.llava, PeftModel) else None
    model.add_lora(recipe.rank, recipe.alpha, recipe.dropout, seed, SHADOW)
    if before is not None:
        _retype(model, flags.keys())
        model.llava.set_adapter(SHADOW)
    try:
        yield SHADOW
    finally:
        if before is None:
            model.remove_lora()
        else:
            activate(model, before)  # first: PEFT warns when it deletes the active one
            model.llava.delete_adapter(SHADOW)
        for name, value in model.named_parameters():
            value.requires_grad_(flags[name][0])
            value.grad = flags[name][1]
        for name, module in model.named_modules():
            module.training = modes[name]


def _retype(model: VisionLanguageModel, known: Collection[str]) -> None:
    """Give new weights the type of the adapters that were there; a trainer may have changed it."""
    weights = dict(model.named_parameters())
    dtype = next(weights[name].dtype for name in known if ".lora_" in name)
    for name in weights.keys() - known:
        weights[name].data = weights[name].data.to(dtype)
