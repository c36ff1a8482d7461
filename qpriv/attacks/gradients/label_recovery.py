"""Recover the labels of a batch from the gradient of a classifier's last layer.

Softmax cross-entropy gives ``db = mean(p - e_y)`` and ``dW = mean((p - e_y) h^T)``. For a single
sample, only the row of its label has the opposite sign, which is all that iDLG needs (Zhao et al.
2020, arXiv:2001.02610, equation 3). The published rules make different assumptions. Each rule here
states its condition, and `recover_labels` uses the strongest rule whose condition holds.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from qpriv.errors import ConfigError

MANY_POSITIONS = 16
"""Answers longer than this are told from their rivals by share of the unit vector alone."""

NEARLY_WHOLE = 0.25
"""Counts of labels as near as this to whole numbers are believed."""


@dataclass(frozen=True)
class HeadGradient:
    """Gradient of a classifier's last layer.

    Args:
        weight: ``[C, D]`` for ``C`` classes and ``D`` features.
        bias: ``[C]``, or None where the layer has none, as LLaMA's.

    Raises:
        ValueError: If the shapes do not fit.
    """

    weight: Tensor
    bias: Tensor | None = None

    def __post_init__(self) -> None:
        """Check the shapes."""
        rows = None if self.bias is None else tuple(self.bias.shape)
        if self.weight.ndim != 2 or rows not in (None, self.weight.shape[:1]):
            raise ValueError(f"weight is {tuple(self.weight.shape)}, bias is {rows}")

    @property
    def num_classes(self) -> int:
        """Return the number of classes ``C``."""
        return len(self.weight)


# -- one sample


def row_sum_label(weight: Tensor) -> int:
    """Return the class whose row has the smallest sum: the rule in iDLG's published code.

    Holds for one sample and features that are not negative (sigmoid, ReLU). Behind tanh or a
    norm it fails.
    """
    return int(weight.sum(dim=1).argmin())


def pair_product_label(weight: Tensor) -> int:
    """Return the class whose row points against all others: the rule in iDLG's paper.

    Holds for one sample, any features, with or without bias, for three classes or more. The rows
    are multiples ``db_i h^T`` of one vector, and only the label's multiple has the opposite sign.
    A product with the longest row gives all multiples; the majority sign is that of the wrong
    classes. There is no threshold, so the rule also works on a confident model's tiny gradients,
    until they underflow.

    >>> pair_product_label(torch.tensor([[0.1, -0.2], [-0.3, 0.6], [0.2, -0.4]]))
    1

    Raises:
        ConfigError: If there are fewer than three classes, because two rows mirror each other.
    """
    if len(weight) < 3:
        raise ConfigError(
            f"a gradient of {len(weight)} classes without bias does not tell which one is right",
            remedy="use the gradient of the bias",
        )
    rows = weight.double()
    multiples = rows @ rows[rows.norm(dim=1).argmax()]
    majority = 1.0 if int((multiples > 0).sum()) >= int((multiples < 0).sum()) else -1.0
    return int((majority * multiples).argmin())


def bias_label(bias: Tensor) -> int:
    """Return the class with the smallest ``db``; holds for one sample, whatever the features."""
    return int(bias.argmin())


def single_features(gradient: HeadGradient) -> Tensor:
    """Return the features ``h`` of the one sample, ``[D]``: ``dW_i / db_i``, exact.

    Raises:
        ConfigError: If there is no bias.
    """
    if gradient.bias is None:
        raise ConfigError("features cannot be read off without the gradient of the bias")
    row = int(gradient.bias.abs().argmax())
    return gradient.weight[row] / gradient.bias[row]


# -- a batch


def sign_labels(bias: Tensor) -> Counter[int]:
    """Return the classes with a negative ``db``, once each.

    Holds if no class occurs twice and the model is uncertain. A class is missed if the other
    samples' probabilities for it sum to more than its own sample's shortfall ``1 - p``.
    """
    return Counter((bias < 0).nonzero()[:, 0].tolist())


def smallest_bias_labels(bias: Tensor, batch_size: int) -> Counter[int]:
    """Return the ``batch_size`` classes of smallest ``db``: `sign_labels` with a known number.

    Raises:
        ConfigError: If the batch is larger than the number of classes.
    """
    _require_distinct(batch_size, len(bias))
    return Counter(bias.topk(batch_size, largest=False).indices.tolist())


def smallest_entry_labels(weight: Tensor, batch_size: int) -> Counter[int]:
    """Return the classes with the smallest entries (Yin et al. 2021, GradInversion, equation 5).

    Holds if no class occurs twice and features are not negative. It also holds for trained models,
    for which ``db`` of a rare class can be positive.

    Raises:
        ConfigError: If the batch is larger than the number of classes.
    """
    _require_distinct(batch_size, len(weight))
    smallest = weight.min(dim=1).values
    return Counter(smallest.topk(batch_size, largest=False).indices.tolist())


def counted_labels(bias: Tensor, batch_size: int, probabilities: Tensor) -> Counter[int]:
    """Return how often each class occurs: ``n_i = B (p_i - db_i)``, rounded to sum to ``B``.

    Classes may repeat. The rule is exact if the model's mean probabilities on the batch equal
    those on the attacker's images, as for an untrained model.

    Args:
        bias: Gradient ``db`` of the mean loss, ``[C]``.
        batch_size: Batch size ``B``.
        probabilities: Mean probabilities over the attacker's images, ``[C]``; noise images would
            give another distribution.

    >>> p = torch.tensor([0.25, 0.25, 0.5])
    >>> counted_labels(p - torch.tensor([2.0, 0.0, 1.0]) / 3, 3, p)
    Counter({0: 2, 2: 1})
    """
    return _apportion(batch_size * (probabilities - bias), batch_size)


def supported_labels(
    gradient: HeadGradient, batch_size: int, probabilities: Tensor
) -> Counter[int]:
    """Return `counted_labels` restricted to classes whose row has a negative entry.

    Holds if features are not negative: the row of an absent class then has no negative entry. The
    restriction corrects counts on a trained model, whose probabilities on its training batch
    differ from those on other images.

    Raises:
        ConfigError: If there is no bias.
    """
    if gradient.bias is None:
        raise ConfigError("labels cannot be counted without the gradient of the bias")
    occurs = gradient.weight.min(dim=1).values < 0
    return _apportion(batch_size * (probabilities - gradient.bias), batch_size, occurs)


def recover_labels(
    gradient: HeadGradient,
    batch_size: int = 1,
    *,
    nonnegative: bool = False,
    probabilities: Tensor | None = None,
) -> Counter[int]:
    """Return the labels of a batch by the strongest rule whose condition holds.

    Counts verify themselves: if they are nearly whole numbers, the probabilities are right. If
    they are not, negative entries show which classes occur.

    Args:
        gradient: Gradient of the mean loss over the batch.
        batch_size: Samples in the batch, known from the protocol.
        nonnegative: Whether features are known not to be negative.
        probabilities: Mean probabilities of the model over the attacker's images, ``[C]``.

    Raises:
        ConfigError: If no rule holds, as for a batch without bias or without ``probabilities``.
    """
    if batch_size == 1:
        bias = gradient.bias
        label = pair_product_label(gradient.weight) if bias is None else bias_label(bias)
        return Counter({label: 1})
    if gradient.bias is None or probabilities is None:
        raise ConfigError(
            f"labels of a batch of {batch_size} cannot be counted",
            remedy="give the gradient of the bias, and the model's mean probabilities",
        )
    shares = batch_size * (probabilities - gradient.bias)
    told = float((shares - shares.round()).abs().max()) < NEARLY_WHOLE
    if nonnegative and not told:
        return supported_labels(gradient, batch_size, probabilities)
    return counted_labels(gradient.bias, batch_size, probabilities)


# -- a language model's head


def answer_tokens(weight: Tensor, end_token: int, noise: float = 0.0) -> set[int]:
    """Return the tokens of an answer from the gradient of the LM head, without the end token.

    Every position of the loss adds ``(p - e_y) h^T``. The rank of the gradient is therefore the
    number of positions, and its column space contains all vectors ``p - e_y``. At least half of
    such a vector's squared norm is in ``y``, because its other entries sum to the same value. So
    at least half of a right token's unit vector is in the column space, however confident the
    model is, and at most as many wrong tokens pass this test. Among these candidates, the right
    ones lie in the column space with a sign of their own.
    Holds for one sample whose answer repeats no token, after a norm and without bias.

    Args:
        weight: ``[V, D]``.
        end_token: Id of the end token, which ends every answer.
        noise: Standard deviation of rounding in ``weight``; see `numerical_rank`.
    """
    matrix = weight.double()
    basis = torch.linalg.svd(matrix, full_matrices=False).U[:, : numerical_rank(matrix, noise)]
    leverage = basis.square().sum(dim=1)
    likely = [int(token) for token in (leverage > 0.5 - 1e-3).nonzero()[:, 0]]
    positions = basis.shape[1] - (end_token in likely)
    others = [token for token in likely if token != end_token]
    if len(others) > positions:
        few = positions <= MANY_POSITIONS
        others.sort(key=lambda t: _sign_violation(basis, t) if few else -float(leverage[t]))
    return set(others[:positions])


def numerical_rank(matrix: Tensor, noise: float = 0.0) -> int:
    """Return how many singular values of a matrix stand out of rounding errors.

    Args:
        matrix: ``[m, n]``.
        noise: Standard deviation of independent errors of the entries, such as a difference of
            stored weights has: their largest singular value is about ``noise (sqrt m + sqrt n)``.

    >>> numerical_rank(torch.ones(3, 4))
    1
    """
    rows, columns = matrix.shape
    values = torch.linalg.svdvals(matrix.double())
    # gradients are summed in float32: what is below its last bits is no direction
    floor = values.max() * max(rows, columns) ** 0.5 * torch.finfo(torch.float32).eps
    return int((values > max(float(floor), 2 * noise * (rows**0.5 + columns**0.5))).sum())


def _sign_violation(basis: Tensor, token: int) -> float:
    """Return how far the column space is from a vector that is negative in one entry alone.

    The smallest ``t`` for which some vector of it is -1 at the token and nowhere else below -t.
    """
    rows = basis.cpu().numpy()
    others = np.delete(rows, token, axis=0)
    found = linprog(
        c=[*np.zeros(rows.shape[1]), 1.0],
        A_ub=np.column_stack([-others, -np.ones(len(others))]),
        b_ub=np.zeros(len(others)),
        A_eq=[[*rows[token], 0.0]],
        b_eq=[-1.0],
        bounds=[(None, None)] * rows.shape[1] + [(0, None)],
    )
    return float(found.fun) if found.status == 0 else float("inf")


def _require_distinct(batch_size: int, num_classes: int) -> None:
    if batch_size > num_classes:
        raise ConfigError(
            f"{batch_size} samples of {num_classes} classes repeat a class",
            remedy="count the labels instead (counted_labels)",
        )


def _apportion(shares: Tensor, total: int, occurs: Tensor | None = None) -> Counter[int]:
    """Return whole numbers near ``shares`` that sum to ``total``, by largest remainder.

    What ``occurs`` gets one at least, what does not gets none.
    """
    shares = shares.double().clone()
    counts = torch.zeros_like(shares)
    if occurs is not None and bool(occurs.any()):
        shares[~occurs] = -torch.inf
        counts[occurs] = 1
    while int(counts.sum()) < total:
        counts[(shares - counts).argmax()] += 1
    return Counter({label: int(n) for label, n in enumerate(counts.tolist()) if n})
