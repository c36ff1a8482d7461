"""Score attribute predictions against majority and chance baselines, with intervals by group.

Attacks that end in a classifier share this module: the classifier trains on the attacker's own
samples and is scored on private ones. Groups (images, patients) are never split, neither in
selecting the classifier nor in the intervals.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from qpriv.declaration import aside
from qpriv.metrics.intervals import Weights, bootstrap_interval, why_no_interval
from qpriv.metrics.means import CHANGE, IMAGE_GROUP, RATE, mean_result
from qpriv.quantity import Quantity
from qpriv.result import Result, Scalar

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Classifiers = Callable[[int], dict[str, ClassifierMixin]]
"""Returns fresh classifiers by name, given a seed."""

FOLDS = 3
TREES = 30
MIN_SAMPLES = 30
"""Smallest number of the attacker's samples; with fewer, the report has no value."""


def quantities(name: str, title: str, *leading: str) -> tuple[Quantity, ...]:
    """Return the quantities of `prediction_report` for one prediction.

    Args:
        name: Name of the prediction, such as ``answer_from_kept_count``.
        title: Title of the prediction.
        leading: Those of ``accuracy``, ``gain`` and ``balanced_accuracy`` shown in a main table.
    """
    found = (
        Quantity(
            name=f"{name}_accuracy",
            title=f"{title}: accuracy",
            meaning="Share that is told right.",
            direction="leak",
            baseline=f"{name}_majority",
        ),
        Quantity(
            name=f"{name}_gain",
            title=f"{title}: gain over the majority",
            meaning="Accuracy less that of always naming the attacker's most frequent class, paired "
            "by sample.",
            direction="leak",
            chance=0.0,
        ),
        Quantity(
            name=f"{name}_balanced_accuracy",
            title=f"{title}: balanced accuracy",
            meaning="Mean over classes of the share that is told right.",
            direction="leak",
        ),
        Quantity(
            name=f"{name}_majority",
            title=f"{title}: majority",
            meaning="Accuracy of always naming the attacker's most frequent class.",
        ),
    )
    return aside(found, *(f"{name}_{each}" for each in leading))


@dataclass(frozen=True)
class Prediction:
    """A classifier's predictions for private samples.

    Args:
        likeliest: The most probable class, ``[n]``.
        balanced: The class with the highest probability relative to its share of the attacker's
            samples, ``[n]``. This is the best guess if all classes have equal weight.
        classifier: Name of the selected classifier.
    """

    likeliest: NDArray[np.str_]
    balanced: NDArray[np.str_]
    classifier: str


def count_classifiers(seed: int) -> dict[str, ClassifierMixin]:
    """Return classifiers for few inputs: a forest, a logistic regression, the majority."""
    return {
        "forest": RandomForestClassifier(TREES, min_samples_leaf=5, random_state=seed),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(C=0.3, max_iter=300)),
        "majority": DummyClassifier(),
    }


def activation_classifiers(seed: int) -> dict[str, ClassifierMixin]:
    """Return classifiers for many inputs: linear and two-layer probes, the majority."""
    layers = MLPClassifier((64,), alpha=0.1, batch_size=32, max_iter=60, random_state=seed)
    return {
        "linear": make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300)),
        "two_layer": make_pipeline(StandardScaler(), layers),
        "majority": DummyClassifier(),
    }


def fit_predict(
    known: Floats,
    labels: Sequence[str],
    groups: Sequence[str],
    asked: Floats,
    seed: int = 0,
    classifiers: Classifiers = count_classifiers,
) -> Prediction:
    """Train the best of several classifiers on known samples and predict private ones.

    The best classifier has the smallest log-loss in a cross-validation over whole groups.

    Args:
        known: Inputs of the attacker's own samples, ``[m, f]``.
        labels: Classes of these samples, ``[m]``.
        groups: Images or patients of these samples, ``[m]``.
        asked: Inputs of the private samples, ``[n, f]``.
        seed: Seed of the classifiers.
        classifiers: Returns the classifiers to try, given a seed.
    """
    classes = np.asarray(labels)
    # validating the forest's settings for every tree takes longer than growing the trees;
    # classifiers may stop before convergence on purpose
    with config_context(skip_parameter_validation=True, assume_finite=True), catch_warnings():
        simplefilter("ignore", ConvergenceWarning)
        chosen = _choose(known, classes, groups, partial(classifiers, seed))
        model = classifiers(seed)[chosen].fit(known, classes)
        shares = np.asarray(model.predict_proba(asked))
    prior = np.asarray([np.mean(classes == name) for name in model.classes_])
    return Prediction(
        model.classes_[shares.argmax(axis=1)],
        model.classes_[(shares / prior).argmax(axis=1)],
        chosen,
    )


def majority(labels: Sequence[str]) -> str:
    """Return the most frequent class; ties go to the alphabetically first.

    >>> majority(["b", "a", "b", "a"])
    'a'
    """
    return min(Counter(labels).items(), key=lambda item: (-item[1], item[0]))[0]


def prediction_report(
    name: str, told: Prediction, truth: Sequence[str], known: Sequence[str], groups: Sequence[str]
) -> list[Result]:
    """Return a classifier's scores on private samples, each with its interval.

    - ``<name>_accuracy``;
    - ``<name>_majority``: accuracy of always predicting the attacker's most frequent class;
    - ``<name>_gain``: their difference, paired by sample; an interval above zero shows a leak;
    - ``<name>_balanced_accuracy``: mean recall over classes, with ``chance`` one over their
      number. It shows leaks that accuracy hides if one class is frequent.

    Args:
        name: Name of the prediction, such as ``answer_from_kept_count``.
        told: The predictions.
        truth: The private classes, ``[n]``.
        known: The classes of the attacker's own samples.
        groups: Images or patients of the private samples, ``[n]``.
    """
    classes = np.asarray(truth)
    right = (told.likeliest == classes).astype(np.float64)
    usual = (classes == majority(known)).astype(np.float64)
    balanced = _balanced(told.balanced == classes, classes)
    settings: dict[str, Scalar] = {
        "classes": len(set(truth)),
        "chance": 1 / max(1, len(set(truth))),
        "classifier": told.classifier,
        "known": len(known),
    }
    units = {IMAGE_GROUP: groups}
    ends = bootstrap_interval(groups, balanced, bounds=(0.0, 1.0), trials=_rarest(classes, groups))
    results = [
        mean_result(f"{name}_accuracy", right, units, bounds=RATE),
        mean_result(f"{name}_majority", usual, units, bounds=RATE),
        mean_result(f"{name}_gain", right - usual, units, bounds=CHANGE),
        Result(
            name=f"{name}_balanced_accuracy",
            value=balanced(np.ones(len(classes), dtype=np.int64)),
            n=len(set(groups)),
            ci=ends,
            clustered_by=IMAGE_GROUP if ends else "",
            note=why_no_interval(ends, groups),
        ),
    ]
    return [replace(result, attack=settings) for result in results]


def _rarest(classes: NDArray[np.str_], groups: Sequence[str]) -> int:
    """Return how many units the class has of which there are fewest."""
    owners = np.asarray(groups)
    return min(len(set(owners[classes == name])) for name in np.unique(classes))


def nothing_to_tell(name: str, why: str) -> Result:
    """Return a result without a value, for an attribute that these samples do not have."""
    return Result(name=f"{name}_accuracy", value=None, n=0, status="not applicable", note=why)


def _choose(
    inputs: Floats,
    classes: NDArray[np.str_],
    groups: Sequence[str],
    fresh: Callable[[], dict[str, ClassifierMixin]],
) -> str:
    """Return the name of the classifier with the least loss on groups it did not learn from."""
    folds = min(FOLDS, len(set(groups)))
    if folds < 2:
        return "majority"
    losses: defaultdict[str, float] = defaultdict(float)
    for learned, held in GroupKFold(folds).split(inputs, classes, groups):
        if len(set(classes[learned])) < 2:
            return "majority"
        for name, model in fresh().items():
            model.fit(inputs[learned], classes[learned])
            losses[name] += _loss(model, inputs[held], classes[held])
    return min(losses, key=lambda name: losses[name])


def _loss(model: ClassifierMixin, inputs: Floats, classes: NDArray[np.str_]) -> float:
    """Return the summed negative log share of the true class, at least one in a thousand."""
    shares = model.predict_proba(inputs)
    columns = {name: column for column, name in enumerate(model.classes_)}
    of_truth = [
        shares[row, columns[name]] if name in columns else 0.0 for row, name in enumerate(classes)
    ]
    return float(-np.log(np.maximum(of_truth, 1e-3)).sum())


def _balanced(right: Bools, classes: NDArray[np.str_]) -> Callable[[Weights], float]:
    """Return the mean over classes of the share that is right, as a function of weights."""
    members = (classes[None] == np.unique(classes)[:, None]).astype(np.float64)
    hits = members * right

    def statistic(weights: Weights) -> float:
        counts = members @ weights
        drawn = counts > 0
        return float((hits @ weights)[drawn] @ (1 / counts[drawn]) / drawn.sum())

    return statistic
