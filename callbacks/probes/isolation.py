"""`isolated`: run an attack during training without leaving a trace in the module."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from callbacks.probes.process_state import process_marks, process_restored
from qpriv.pruning.image_ledger import ImageLedger

_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
)
# transformers installs its hidden-state hooks at the first call that requests hidden states
_HOOKS_INSTALLED = "_output_capturing_hooks_installed"
_PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_ADAPTER_STATE = ("_active_adapter", "_disable_adapters")


class IsolationError(RuntimeError):
    """A probe left a trace in the model it measured and so changed the training."""


def item_seed(*parts: object) -> int:
    """Return a 32-bit seed that depends on the given parts only.

    >>> item_seed(0, "fora", 3) == item_seed(0, "fora", 3)
    True
    >>> item_seed(0, "fora", 3) == item_seed(0, "fora", 4)
    False
    """
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big")


@contextmanager
def isolated(
    module: nn.Module, *, seed: int, audit: bool = False, name: str = ""
) -> Iterator[None]:
    """Run the body on a frozen module in evaluation mode with autograd on, then undo all changes.

    It restores, also after an error: the random states of Python, NumPy, torch and the module's
    GPU; torch's global settings and the environment (see `process_restored`); each submodule's
    mode; each parameter's ``requires_grad`` and gradient; the values of trained parameters and of
    buffers; the ledgers of policies; PEFT's active adapters; and the hooks on modules and
    parameters.
    It does not restore, but ``audit`` reports: added adapters or submodules, overwritten frozen
    parameters (a second copy of a large model would take too much memory), and changed optimisers
    of the training.

    Args:
        module: The LightningModule or model to measure.
        seed: Seed of the body's random numbers.
        audit: Hash parameters, buffers and random states before and after, and raise on a trace.
        name: Name of the probe, for the audit's message.

    Raises:
        IsolationError: If ``audit`` finds a trace.
    """
    before = fingerprint(module) if audit else {}
    with process_restored(_gpus(module), seed), torch.inference_mode(False), torch.enable_grad():
        memory = _Memory(module)
        try:
            module.eval()
            for parameter in module.parameters():
                parameter.requires_grad_(False)
                parameter.grad = None
            yield
        finally:
            memory.restore()
    if audit:
        after = fingerprint(module)
        traces = sorted(
            key for key in before.keys() | after.keys() if before.get(key) != after.get(key)
        )
        if traces:
            raise IsolationError(f"{name or 'the probe'} left a trace in: {', '.join(traces[:5])}")


def _gpus(module: nn.Module) -> set[int]:
    devices = {parameter.device for parameter in module.parameters()}
    return {d.index for d in devices if d.type == "cuda" and d.index is not None}


class _Memory:
    """Saved state of a module: references where these suffice, copies elsewhere."""

    def __init__(self, module: nn.Module) -> None:
        self.modules = list(module.modules())
        self.modes = [part.training for part in self.modules]
        self.parameters = [(p, p.requires_grad, p.grad) for p in module.parameters()]
        self.parameter_hooks = [
            (parameter, name, dict(getattr(parameter, name) or {}))
            for parameter, _, _ in self.parameters
            for name in _PARAMETER_HOOKS
        ]
        changing = [p for p, trained, _ in self.parameters if trained]
        self.values = [(t, t.detach().clone()) for t in (*changing, *module.buffers())]
        self.hooks = [self._each(part, _HOOKS, dict) for part in self.modules]
        self.unhooked = [part for part in self.modules if _HOOKS_INSTALLED not in part.__dict__]
        self.ledgers = [
            (p, p.get_extra_state()) for p in self.modules if isinstance(p, ImageLedger)
        ]
        self.adapters = [self._each(part, _ADAPTER_STATE, lambda x: x) for part in self.modules]

    @staticmethod
    def _each(part: nn.Module, names: Iterable[str], copy: Callable[[Any], Any]) -> dict[str, Any]:
        return {name: copy(part.__dict__[name]) for name in names if name in part.__dict__}

    @torch.no_grad()
    def restore(self) -> None:
        for part, training, hooks, adapter in zip(
            self.modules, self.modes, self.hooks, self.adapters, strict=True
        ):
            part.training = training
            part.__dict__.update(adapter)
            for name, known in hooks.items():
                _keep_only(part.__dict__[name], known)
        for ledger, crossed in self.ledgers:
            ledger.set_extra_state(crossed)
        for part in self.unhooked:
            # else the model would believe that the removed hooks are still installed
            part.__dict__.pop(_HOOKS_INSTALLED, None)
        for tensor, value in self.values:
            if not _same(tensor, value):
                tensor.copy_(value)
        for parameter, name, known in self.parameter_hooks:
            _keep_only(getattr(parameter, name) or {}, known)
        for parameter, trained, gradient in self.parameters:
            parameter.requires_grad_(trained)
            parameter.grad = gradient


def _keep_only(hooks: dict[int, Any], known: dict[int, Any]) -> None:
    for key in [key for key in hooks if key not in known]:
        del hooks[key]


def _same(tensor: Tensor, value: Tensor) -> bool:
    # NaN equals itself here: a buffer may hold NaN on purpose
    return torch.equal(tensor, value) or bool(torch.allclose(tensor, value, 0, 0, equal_nan=True))


def fingerprint(module: nn.Module) -> dict[str, str]:
    """Return a digest of each state that a probe could change, by name."""
    marks = {name: _digest(state) for name, state in process_marks().items()}
    for name, part in module.named_modules():
        hooks = [sorted(part.__dict__[key]) for key in _HOOKS if key in part.__dict__]
        adapter = [part.__dict__.get(key) for key in _ADAPTER_STATE]
        marks[f"module {name}"] = repr((part.training, hooks, adapter))
        if isinstance(part, ImageLedger):
            marks[f"ledger {name}"] = _digest(repr(part.get_extra_state()).encode())
    for name, parameter in module.named_parameters():
        gradient = None if parameter.grad is None else tensor_digest(parameter.grad)
        hooks = [sorted(getattr(parameter, key) or {}) for key in _PARAMETER_HOOKS]
        marks[f"parameter {name}"] = (
            f"{parameter.requires_grad} {tensor_digest(parameter)} {gradient} {hooks}"
        )
    for name, buffer in module.named_buffers():
        marks[f"buffer {name}"] = tensor_digest(buffer)
    for number, optimizer in enumerate(_optimizers(module)):
        marks[f"optimizer {number}"] = _digest(repr(_plain(optimizer.state_dict())).encode())
    return marks


def _optimizers(module: nn.Module) -> Sequence[torch.optim.Optimizer]:
    """Return the optimisers of the module's trainer; empty if it has no trainer."""
    trainer = getattr(module, "_trainer", None)
    return () if trainer is None else cast(Sequence[torch.optim.Optimizer], trainer.optimizers)


def _plain(state: object) -> object:
    """Replace each tensor of a nested state by its digest."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_plain(value) for value in state]
    return tensor_digest(state) if isinstance(state, Tensor) else state


def tensor_digest(tensor: Tensor) -> str:
    """Return a hash of a tensor's bytes."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    return _digest(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
