import pytest
import torch
from hypothesis import settings

from qpriv.models.batch import VQABatch
from qpriv.models.features import VisualFeatures
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.pruning import DynamicThresholdPredictor, PredictorConfig
from tests.tiny_models import random_model, random_samples

# a limit of wall-clock time an example fails by chance where the machine is busy
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="package")
def model() -> VisionLanguageModel:
    """A model that tests share and must leave as it is."""
    return random_model()


@pytest.fixture(scope="package")
def batch(model: VisionLanguageModel) -> VQABatch:
    return model.preprocessor(random_samples(6))


@pytest.fixture(scope="package")
def features(model: VisionLanguageModel, batch: VQABatch) -> VisualFeatures:
    return model.encode(batch)


@pytest.fixture(scope="package")
def predictor(model: VisionLanguageModel) -> DynamicThresholdPredictor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return DynamicThresholdPredictor(PredictorConfig.scaled(model.feature_sizes))
