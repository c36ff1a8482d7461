"""LoRA adapters: activate, export and load them, and add a temporary one."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from peft import PeftModel

from qpriv.models.llava.quantization import Quantization, quantization_settings
from qpriv.models.llava.vision_language import VisionLanguageModel

from .recipe import LoraRecipe

SHADOW = "shadow"
"""Name of the temporary adapter."""


def activate(model: VisionLanguageModel, adapters: Sequence[str]) -> None:
    """Activate exactly the given adapters of a model."""
    model.llava.base_model.set_adapter(list(adapters))
    model.llava.active_adapter = adapters[0]


def export_adapters(model: VisionLanguageModel, adapters: Sequence[str], folder: Path) -> None:
    """Write adapters as PEFT folders: ``default`` into the folder, others into subfolders."""
    for name in adapters:
        # the name that users can load, not the folder it was loaded from
        model.llava.peft_config[name].base_model_name_or_path = model.backbone.llava
    model.llava.save_pretrained(folder, selected_adapters=list(adapters))


def adapter_folder(folder: Path, name: str) -> Path:
    """Return the folder that `export_adapters` wrote an adapter into."""
    return folder if name == "default" else folder / name


def loading_lines(
    base: str,
    adapters: Sequence[str],
    folder: Path,
    dtype: str = "float32",
    quantization: Quantization = "none",
) -> list[str]:
    """Return Python code that loads exported adapters without this package and activates them.

    Args:
        base: Name or folder of the base model.
        adapters: Adapters that are active together, such as the server's and one client's.
        folder: Folder that `export_adapters` wrote them into.
        dtype: Dtype of the base model's weights in training.
        quantization: Format of the base model's quantised weights.
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
    """Add a new adapter as the only active and trainable one, and remove it afterwards.

    Existing adapters keep their weights and are inactive meanwhile. Afterwards ``requires_grad``,
    gradients, modes and active adapters are restored.

    Args:
        model: The model.
        recipe: Rank, scale and dropout of the adapter.
        seed: Seed of its initial weights.

    Yields:
        The adapter's name.
    """
    flags = {name: (value.requires_grad, value.grad) for name, value in model.named_parameters()}
    modes = {name: module.training for name, module in model.named_modules()}
    # parties have their own adapters, several of which may be active at once
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
            activate(model, before)  # first, because PEFT warns when it deletes an active one
            model.llava.delete_adapter(SHADOW)
        for name, value in model.named_parameters():
            value.requires_grad_(flags[name][0])
            value.grad = flags[name][1]
        for name, module in model.named_modules():
            module.training = modes[name]


def _retype(model: VisionLanguageModel, known: Collection[str]) -> None:
    """Convert new weights to the dtype of the existing adapters, which a trainer may have set."""
    weights = dict(model.named_parameters())
    dtype = next(weights[name].dtype for name in known if ".lora_" in name)
    for name in weights.keys() - known:
        weights[name].data = weights[name].data.to(dtype)
