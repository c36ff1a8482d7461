"""Metric names that distinguish probes by the settings in which they differ."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from callbacks.probes.cache import content_digest
from qpriv.key import AttackSetting, Scalar
from qpriv.result import Result

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def metric_names(
    results: Sequence[Result], own: Mapping[str, Scalar], apart: Collection[str]
) -> dict[str, float]:
    """Return the finite values by the names under which they are logged.

    A metric name ends with the settings that distinguish it within the run: those in which probes
    of one name differ (``attack/fora/psnr/steps=60``), and those that the probe itself varies
    (``attack/membership/auc/query_policy=off``). The name does not depend on other results, so it
    is the same at all epochs even if other measurements fail.

    Args:
        results: The results.
        own: The probe's setting.
        apart: Names of the settings in which probes of one name differ.
    """
    metrics: dict[str, float] = {}
    for result in results:
        if result.value is None or not math.isfinite(result.value):
            continue
        varied = [k for k, v in result.setting.items() if k not in own or own[k] != v]
        told = [key for key in sorted({*apart, *varied}) if key in result.setting]
        suffix = "".join(f"/{key}={_word(result.setting[key])}" for key in told)
        metrics[result.name + suffix] = float(result.value)
    return metrics


def differences(probe: "DataclassInstance", other: "DataclassInstance") -> Sequence[str]:
    """Return the names of the settings in which two probes differ."""
    return setting_beside(probe, other).unlike(setting_beside(other, probe))


def setting_beside(probe: "DataclassInstance", other: "DataclassInstance") -> AttackSetting:
    """Return a probe's setting, precise enough to distinguish it from another probe's."""
    return AttackSetting.given(
        {**AttackSetting.of(probe).by_name, **dict(file_contents(probe, other))}
    )


def file_contents(
    probe: "DataclassInstance", other: "DataclassInstance"
) -> Iterator[tuple[str, Scalar]]:
    """Yield digests of a probe's files that share their name with another probe's file."""
    for each in fields(probe):
        ours, theirs = getattr(probe, each.name), getattr(other, each.name, None)
        if isinstance(ours, Path) and isinstance(theirs, Path) and ours != theirs:
            if ours.name == theirs.name:
                yield each.name, f"{ours.name}@{content_digest(ours)}"


def _word(value: Scalar) -> str:
    """Return a setting as part of a metric name, with slashes replaced by bars.

    >>> _word("what/which"), _word(0.5), _word(None)
    ('what|which', '0.5', 'None')
    """
    return str(value).replace("/", "|")
