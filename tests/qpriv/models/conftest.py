import pytest

from qpriv.models.batch import VQABatch
from qpriv.models.features import VisualFeatures
from qpriv.models.llava.vision_language import VisionLanguageModel
from tests.tiny_models import random_model, random_samples


@pytest.fixture(scope="package")
def model() -> VisionLanguageModel:
    """A model that tests share and must leave as it is."""
    return random_model()


@pytest.fixture(scope="package")
def batch(model: VisionLanguageModel) -> VQABatch:
    return model.preprocessor(random_samples(4))


@pytest.fixture(scope="package")
def features(model: VisionLanguageModel, batch: VQABatch) -> VisualFeatures:
    return model.encode(batch)
