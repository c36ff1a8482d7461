"""What a fine-tune will take and give away, from its configuration alone: no weights are read."""

from .architecture import Architecture, Encoder, read_architecture
from .cost import PassCost, Placement, activation_bytes, memory_bytes, pass_cost
from .plan import Plan, make_plan
from .threat_model import threat_model

__all__ = (
    "Architecture",
    "Encoder",
    "PassCost",
    "Placement",
    "Plan",
    "activation_bytes",
    "make_plan",
    "memory_bytes",
    "pass_cost",
    "read_architecture",
    "threat_model",
)
