"""`ThreatModel`: who attacks, what they hold, and what they know. Printed with every figure."""

from dataclasses import dataclass
from typing import Literal

from qpriv.result import Scalar


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """What an attack is granted.

    Args:
        attacker: Who attacks: ``server``, ``client`` or ``outsider``.
        active: Whether it departs from the protocol (a passive one only looks).
        auxiliary: Data of its own.
        knows_policy: Whether it trained against the very pruning policy it attacks.
        knows_positions: Whether it knows which patches were kept (who does is the stronger one);
            None where the attack reads no image token.
        access: What it sees of the victim.
    """

    attacker: Literal["server", "client", "outsider"] = "server"
    active: bool = False
    auxiliary: str = "none"
    knows_policy: bool = True
    knows_positions: bool | None = None
    access: str = "transcript"

    def settings(self) -> dict[str, Scalar]:
        """Return the parts as they stand in a `Result`.

        >>> ThreatModel(auxiliary="labelled scenes").settings()["auxiliary"]
        'labelled scenes'
        """
        parts: dict[str, Scalar] = {
            "attacker": self.attacker,
            "active": self.active,
            "auxiliary": self.auxiliary,
            "knows_policy": self.knows_policy,
            "access": self.access,
        }
        if self.knows_positions is not None:
            parts["knows_positions"] = self.knows_positions
        return parts
