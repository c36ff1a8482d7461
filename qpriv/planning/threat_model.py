"""The threat model in words: who sees what, and which attacks of this suite that serves."""

from qpriv.paradigms import Paradigm

ASSUMED = (
    "Assumed: parties follow the protocol and keep what they see (honest but curious); only FSHA "
    "and a server that answers with gradients of its own are active. Nothing here hides that a "
    "client takes part, when, or how often."
)
EVERYONE = (
    "Whoever may ask the trained model, or has its adapter, can try membership inference and "
    "extraction, whatever the paradigm."
)


def threat_model(paradigm: Paradigm, adapter_parameters: int) -> tuple[str, ...]:
    """Return who sees what under a paradigm, a sentence each.

    Args:
        paradigm: The paradigm, its cuts placed.
        adapter_parameters: Trained parameters of one adapter.
    """
    return (*paradigm.sees(adapter_parameters), EVERYONE, ASSUMED)
