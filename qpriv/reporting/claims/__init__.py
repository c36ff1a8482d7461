"""Claims: shown, not assumed; each ends as reproduced, not reproduced or undecided."""

from ..evidence import Evidence
from .attacks import attack_claims
from .pruning import alpha_sweeps, pruning_claims
from .verdict import RULE, Claim, Verdict, decide


def evaluate_claims(evidence: Evidence) -> list[Claim]:
    """Return every claim with its verdict on these figures, in the order of the report."""
    return [*pruning_claims(evidence), *attack_claims(evidence)]


__all__ = ["RULE", "Claim", "Verdict", "alpha_sweeps", "decide", "evaluate_claims"]
