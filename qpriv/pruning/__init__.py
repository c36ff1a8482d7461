"""Which visual tokens stay: utility, sensitivity, threshold, oracle and policies."""

from .budget import default_k_min, kept_count, top_k
from .controls import DownsamplePruning, RandomPruning
from .decision import PruningDecision
from .label import PolicyLabel, RankBy
from .oracle_table import OracleMode, OracleTable
from .policy import (
    ConstantRatioPruning,
    DynamicPruning,
    FixedRatioPruning,
    NoPruning,
    OraclePruning,
    PruningPolicy,
    RankedPruning,
)
from .sensitivity import BagPooling, SensitivityHead, bag_logits, bag_loss, resize_grid
from .threshold import (
    DynamicThresholdPredictor,
    PredictorConfig,
    PredictorOutput,
    RatioPredictor,
    sensitivity_summary,
)
from .utility import UtilityScorer, random_scorer

__all__ = (
    "BagPooling",
    "ConstantRatioPruning",
    "DownsamplePruning",
    "DynamicPruning",
    "DynamicThresholdPredictor",
    "FixedRatioPruning",
    "NoPruning",
    "OracleMode",
    "OraclePruning",
    "OracleTable",
    "PolicyLabel",
    "PredictorConfig",
    "PredictorOutput",
    "PruningDecision",
    "PruningPolicy",
    "RandomPruning",
    "RankBy",
    "RankedPruning",
    "RatioPredictor",
    "SensitivityHead",
    "UtilityScorer",
    "bag_logits",
    "bag_loss",
    "default_k_min",
    "kept_count",
    "random_scorer",
    "resize_grid",
    "sensitivity_summary",
    "top_k",
)
