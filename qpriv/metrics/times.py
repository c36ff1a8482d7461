"""What training steps take."""

from qpriv.quantity import Quantity

WALL_CLOCK = Quantity(
    name="train_seconds",
    title="Seconds an epoch",
    meaning="Training steps alone, all parties together.",
    unit="s",
)
CPU_TIME = Quantity(
    name="train_cpu_seconds",
    title="CPU seconds an epoch",
    meaning="The same of all cores, also when shared.",
    unit="s",
)
