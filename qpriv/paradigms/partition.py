"""Partitions of images over clients: disjoint shards, IID or skewed."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError

PartitionName = Literal["iid", "dirichlet"]

_DRAWS = 1000


class Partition:
    """The client of every group (image or patient); no two clients hold the same image.

    Groups outside the training set, such as those of a validation split, get a client by a hash
    of their name. Every client is therefore evaluated on its own share.

    Args:
        owners: Client of each group, by the group's name.
        num_clients: Number of clients.
    """

    def __init__(self, owners: dict[str, int], num_clients: int) -> None:
        self.owners, self.num_clients = owners, num_clients

    def client(self, sample: VQASample) -> int:
        """Return the client that holds a sample."""
        group = group_name(sample)
        if group in self.owners:
            return self.owners[group]
        digest = hashlib.sha256(group.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.num_clients

    def sizes(self, samples: Sequence[VQASample]) -> list[int]:
        """Return the number of samples of each client."""
        counts = Counter(self.client(sample) for sample in samples)
        return [counts[client] for client in range(self.num_clients)]


def draw_partition(
    samples: Sequence[VQASample],
    num_clients: int,
    *,
    name: PartitionName = "iid",
    concentration: float = 0.5,
    seed: int = 0,
) -> Partition:
    """Deal the groups of a training set to clients.

    ``iid`` deals shuffled groups in turn, so shard sizes differ by at most one group.
    ``dirichlet`` draws, for every question type, the clients' shares of its groups from a
    symmetric Dirichlet distribution (Hsu et al. 2019, https://arxiv.org/abs/1909.06335,
    section 3). The smaller the concentration, the fewer clients hold a type. The type of a group
    is that of most of its questions.

    Args:
        samples: The training set.
        num_clients: Number of clients.
        name: How groups are dealt.
        concentration: Concentration of the Dirichlet distribution; above 0.
        seed: Seed of the draw.

    Raises:
        ConfigError: If a client would get no group.
    """
    kinds = _kinds(samples)
    if num_clients > len(kinds):
        raise ConfigError(
            f"{num_clients} clients share {len(kinds)} images", remedy="give fewer clients"
        )
    generator = np.random.default_rng(seed)
    if name == "iid":
        groups = [sorted(kinds)[index] for index in generator.permutation(len(kinds))]
        return Partition({g: place % num_clients for place, g in enumerate(groups)}, num_clients)
    for _ in range(_DRAWS):
        owners = _skewed(kinds, num_clients, concentration, generator)
        if len(set(owners.values())) == num_clients:
            return Partition(owners, num_clients)
    raise ConfigError(
        f"a concentration of {concentration} leaves one of {num_clients} clients without data",
        remedy="give fewer clients, or a larger concentration",
    )


def group_name(sample: VQASample) -> str:
    """Return the group's name, unique over all data sets."""
    return f"{sample.dataset}/{sample.group_id}"


def _kinds(samples: Sequence[VQASample]) -> dict[str, str]:
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sample in samples:
        kind = sample.meta.get("question_type", sample.answer_type)
        votes[group_name(sample)][f"{sample.dataset}/{kind}"] += 1
    return {
        group: min(counts, key=lambda kind: (-counts[kind], kind))
        for group, counts in votes.items()
    }


def _skewed(
    kinds: dict[str, str], num_clients: int, concentration: float, generator: np.random.Generator
) -> dict[str, int]:
    owners: dict[str, int] = {}
    for kind in sorted(set(kinds.values())):
        groups = sorted(group for group, own in kinds.items() if own == kind)
        shares = generator.dirichlet(np.full(num_clients, concentration))
        clients = np.repeat(np.arange(num_clients), _apportion(shares, len(groups)))
        for place, client in zip(generator.permutation(len(groups)), clients, strict=True):
            owners[groups[place]] = int(client)
    return owners


def _apportion(shares: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Return whole numbers that sum to ``total``, by the largest-remainder method."""
    counts = np.floor(shares * total).astype(np.int64)
    rest = total - int(counts.sum())
    counts[np.argsort(counts - shares * total, kind="stable")[:rest]] += 1
    return counts
