"""`ThreatModel`: who attacks, with which data and knowledge; every result states it."""

from dataclasses import dataclass
from typing import Literal

from qpriv.result import Scalar


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """The attacker's capabilities and knowledge.

    Args:
        attacker: Who attacks: ``server``, ``client`` or ``outsider``.
        active: Whether the attacker departs from the protocol (a passive one only observes).
        auxiliary: The attacker's own data.
        knows_policy: Whether the attacker trained against the pruning policy it attacks.
        knows_positions: Whether the attacker knows which patches were kept, which makes it
            stronger; None if the attack reads no image token.
        access: What the attacker sees of the victim.
    """

    attacker: Literal["server", "client", "outsider"] = "server"
    active: bool = False
    auxiliary: str = "none"
    knows_policy: bool = True
    knows_positions: bool | None = None
    access: str = "transcript"

    def settings(self) -> dict[str, Scalar]:
        """Return the fields as a `Result` stores them.

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
