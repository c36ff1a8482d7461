"""Claims: shown, not assumed; each ends as reproduced, not reproduced or undecided."""

from qpriv.attacks import registry

from ..evidence import Evidence
from .attacks import attack_claims
from .families import Families, adjusted_claims, check_families
from .power import would_decide
from .pruning import alpha_sweeps, pruning_claims
from .trend import RANDOM_TOPIC
from .verdict import RULE, Claim, Verdict, decide


def evaluate_claims(evidence: Evidence) -> list[Claim]:
    """Return every claim with its verdict on these figures, in the order of the report.

    Each is judged by itself; `adjusted_claims` judges those of a family together.
    """
    return [*pruning_claims(evidence), *attack_claims(evidence)]


def topics() -> list[str]:
    """Return every topic that a claim can have."""
    found = [claim.topic for claim in evaluate_claims(Evidence([]))]
    declared = [claim.topic for attack in registry.attacks() for claim in attack.claims]
    return list(dict.fromkeys([*found, *declared, RANDOM_TOPIC]))


__all__ = [
    "RULE",
    "Claim",
    "Families",
    "Verdict",
    "adjusted_claims",
    "alpha_sweeps",
    "check_families",
    "decide",
    "evaluate_claims",
    "topics",
    "would_decide",
]
