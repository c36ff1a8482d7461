"""Which visual tokens stay: utility, sensitivity, threshold, oracle and policies."""

from .baselines import DownsamplePruning, RandomPruning
from .budget import default_k_min, kept_count, top_k
from .decision import PruningDecision
from .distillation import (
    DistillationLoss,
    UtilityTarget,
    distillation_loss,
    mask_loss,
    mask_target,
    ratio_loss,
)
from .image_ledger import ImageLedger, Mask, Wish
from .in_decoder import InDecoderPruning, Sides, decision_at
from .label import PolicyLabel, RankBy
from .learned import ConstantRatioPruning, DynamicPruning, FixedRatioPruning, RankedPruning
from .oracle import OracleSearch, first_token_matches
from .oracle_policy import OraclePruning
from .oracle_table import OracleMode, OracleTable
from .policy import NoPruning, PruningPolicy
from .predictor import (
    DynamicThresholdPredictor,
    PredictorConfig,
    PredictorOutput,
    RatioPredictor,
    sensitivity_summary,
)
from .saliency import grounded_utility, saliency_rank
from .sensitivity import BagPooling, SensitivityHead, bag_logits, bag_loss, resize_grid
from .utility import UtilityScorer, random_scorer

__all__ = (
    "BagPooling",
    "ConstantRatioPruning",
    "DistillationLoss",
    "DownsamplePruning",
    "DynamicPruning",
    "DynamicThresholdPredictor",
    "FixedRatioPruning",
    "ImageLedger",
    "InDecoderPruning",
    "Mask",
    "NoPruning",
    "OracleMode",
    "OraclePruning",
    "OracleSearch",
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
    "Sides",
    "UtilityScorer",
    "UtilityTarget",
    "Wish",
    "bag_logits",
    "bag_loss",
    "decision_at",
    "default_k_min",
    "distillation_loss",
    "first_token_matches",
    "grounded_utility",
    "kept_count",
    "mask_loss",
    "mask_target",
    "random_scorer",
    "ratio_loss",
    "resize_grid",
    "saliency_rank",
    "sensitivity_summary",
    "top_k",
)
