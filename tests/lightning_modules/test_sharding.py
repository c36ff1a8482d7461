"""What cannot be done with a decoder divided among processes is refused before weights load."""

import lightning as L
import pytest

from lightning_modules import VQAModule
from qpriv.errors import ConfigError
from qpriv.paradigms import Federated
from tests.tiny_models import random_backbone
from tests.toy_policies import LastTokenAttention


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"paradigm": Federated(num_clients=2)},
            "clients of Federated run its layers at different",
        ),
        ({"policy": LastTokenAttention()}, "decides beside the layers"),
        ({"quantization": "nf4"}, "weights in nf4 cannot be divided"),
    ],
)
def test_it_is_refused(settings, told, monkeypatch) -> None:
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    module = VQAModule(str(random_backbone()), shard=True, **settings)
    module.trainer = trainer
    module.setup("validate")  # one process has all of it
    monkeypatch.setattr(type(trainer), "world_size", 2)
    with pytest.raises(ConfigError, match=rf"{told}.*--model\.shard.*or shard false"):
        module.setup("validate")
