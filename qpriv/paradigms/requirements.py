"""Checks of a run against a defence's requirements."""

from qpriv.errors import ConfigError
from qpriv.split import Defence


def check_run(
    defence: Defence,
    paradigm: str,
    *,
    clients: int,
    together: bool,
    labels_cross: bool,
    trained: bool,
) -> None:
    """Check a paradigm against a defence's requirements.

    Args:
        defence: The defence.
        paradigm: Name of the paradigm's class.
        clients: Number of clients.
        together: Whether the clients step together.
        labels_cross: Whether the server gets the answers.
        trained: Whether anything before the first cut is trained.

    Raises:
        ConfigError: If a requirement is not met; the message names it.
    """
    needs = defence.needs
    missing = {
        f"{needs.clients} clients": needs.clients > clients,
        "clients that step together (schedule: together)": (needs.together or defence.joins)
        and not together,
        "labels that cross to the server": needs.labels and not labels_cross,
        "something that trains before the cut": needs.trained and not trained,
    }
    for what, holds in missing.items():
        if holds:
            raise ConfigError(
                f"{defence.label} needs {what}: it cannot defend this {paradigm}",
                where="--model.defence",
                remedy="choose another paradigm or defence, or more clients",
            )


def check_sizes(defence: Defence, samples: float, micro_batch_size: int | None) -> None:
    """Check the batch sizes against a defence's requirements.

    Args:
        defence: The defence.
        samples: Mean number of samples per client and step.
        micro_batch_size: Largest number of samples per pass; None is the whole batch.

    Raises:
        ConfigError: If there are too few samples, or micro-batches split parts to join.
    """
    if defence.joins and micro_batch_size is not None:
        raise ConfigError(
            f"{defence.label} joins the whole parts of its clients",
            where="--model.micro_batch_size",
            remedy="leave it out",
        )
    count = min(samples, micro_batch_size or samples)
    if count < defence.needs.batch_size:
        raise ConfigError(
            f"{defence.label} needs {defence.needs.batch_size} samples of a client at a time, "
            f"there are {count:g}",
            where="--data.batch_size",
            remedy="raise it, or --model.micro_batch_size",
        )
