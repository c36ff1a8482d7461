"""The threat model in words: who sees what, and which attacks of this suite that serves."""

from qpriv.paradigms import Centralized, Federated, Paradigm
from qpriv.paradigms.split import SplitParadigm

ASSUMED = (
    "Assumed: parties follow the protocol and keep what they see (honest but curious); only FSHA "
    "and a server that answers with gradients of its own are active. Nothing here hides that a "
    "client takes part, when, or how often."
)


def threat_model(paradigm: Paradigm, adapter_parameters: int) -> tuple[str, ...]:
    """Return who sees what under a paradigm, a sentence each.

    Args:
        paradigm: The paradigm, its cuts placed.
        adapter_parameters: Trained parameters of one adapter.
    """
    sees = _OF[type(paradigm)] if type(paradigm) in _OF else _split
    return (*sees(paradigm, adapter_parameters), _everyone(), ASSUMED)


def _centralized(paradigm: Paradigm, adapter_parameters: int) -> tuple[str, ...]:
    return (
        "One party owns model and data: it sees every image, question and answer.",
        "Nothing crosses while training. The bytes stand for a cut where one would be made.",
    )


def _federated(paradigm: Paradigm, adapter_parameters: int) -> tuple[str, ...]:
    return (
        f"{paradigm.num_clients} clients keep images, questions and answers.",
        f"The server sees each client's adapter after its local steps, {adapter_parameters:,} "
        "numbers a round, and how many samples it trained on.",
        "It can invert updates (DLG, iDLG) and tell members from non-members. Pruning changes what "
        "the updates are about, not how many numbers cross.",
    )


def _split(paradigm: Paradigm, adapter_parameters: int) -> tuple[str, ...]:
    assert isinstance(paradigm, SplitParadigm)
    cuts = " and ".join(map(str, paradigm.cuts))
    first = (
        f"{paradigm.num_clients} client(s) keep the images. The server sees, token by token, what "
        f"enters layer {paradigm.cuts[0]}: one vector for every kept patch and for every token of "
        "prompt and answer; and how many tokens there are.",
        "It can invert the vectors (FORA, supervised inversion), steer the client by its "
        "gradients (FSHA), and tell members from non-members.",
        "A dropped patch has no vector of its own; what earlier layers have mixed of it into kept "
        "ones may still be there.",
    )
    if paradigm.labels_cross:
        return (
            *first,
            f"Cut at {cuts}: the loss is computed by the server, which is told the answers.",
        )
    return (
        *first,
        f"Cut at {cuts}: labels, logits and answers stay with the client, but gradients return "
        f"into layer {paradigm.cuts[1]}, and they depend on the answers.",
    )


def _everyone() -> str:
    return (
        "Whoever may ask the trained model, or has its adapter, can try membership inference and "
        "extraction, whatever the paradigm."
    )


_OF = {Centralized: _centralized, Federated: _federated}
