"""A small page encoder for `VisionEncoderDecoderModel`: strided convolutions, then attention."""

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput


class PageEncoderConfig(PretrainedConfig):  # type: ignore[misc]
    """Sizes of a `PageEncoder`.

    Args:
        image_size: Height and width of the page in pixels.
        channels: Output channels of the convolutions, each of stride 2; the last keeps the width.
        hidden_size: Width of the tokens.
        num_layers: Layers of attention.
        num_heads: Heads of each.
    """

    model_type = "qpriv_page_encoder"

    def __init__(
        self,
        image_size: tuple[int, int] = (64, 128),
        channels: tuple[int, ...] = (8, 16, 32, 64),
        hidden_size: int = 128,
        num_layers: int = 2,
        num_heads: int = 4,
        **kwargs: object,  # the fields every configuration file of the library carries
    ) -> None:
        self.image_size = list(image_size)
        self.channels = list(channels)
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        super().__init__(**kwargs)

    @property
    def grid(self) -> tuple[int, int]:
        """Return rows and columns of the tokens."""
        stride = 2 ** len(self.channels)
        return self.image_size[0] // stride, 2 * self.image_size[1] // stride


class PageEncoder(PreTrainedModel):  # type: ignore[misc]
    """Encodes a page ``[B, 3, H, W]`` as tokens ``[B, N, D]``, each 16 x 8 pixels by default."""

    config_class = PageEncoderConfig
    main_input_name = "pixel_values"
    base_model_prefix = "page_encoder"

    def __init__(self, config: PageEncoderConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        layers: list[nn.Module] = []
        before = 3
        for number, after in enumerate(config.channels, start=1):
            stride = (2, 1) if number == len(config.channels) else (2, 2)
            layers += [nn.Conv2d(before, after, 3, stride, 1), nn.GroupNorm(4, after), nn.GELU()]
            before = after
        self.stem = nn.Sequential(*layers, nn.Conv2d(before, width, 1))
        rows, columns = config.grid
        self.row = nn.Parameter(torch.randn(rows, 1, width) * 0.02)
        self.column = nn.Parameter(torch.randn(1, columns, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, config.num_heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(
            layer, config.num_layers, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Leave the modules as torch initialises them."""

    def forward(
        self,
        pixel_values: Tensor,
        return_dict: bool | None = None,
        **kwargs: object,  # what the library hands to every encoder
    ) -> BaseModelOutput:
        """Return the tokens, row by row."""
        maps = self.stem(pixel_values).permute(0, 2, 3, 1)
        tokens = (maps + self.row + self.column).flatten(1, 2)
        return BaseModelOutput(last_hidden_state=self.layers(tokens))


AutoConfig.register(PageEncoderConfig.model_type, PageEncoderConfig)
AutoModel.register(PageEncoderConfig, PageEncoder)
