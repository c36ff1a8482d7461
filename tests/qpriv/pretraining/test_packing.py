import torch
from transformers import LlamaConfig, LlamaForCausalLM

from qpriv.pretraining.packing import pack


def test_packed_questions_equal_separate_sequences():
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=30,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=3,
            num_attention_heads=2,
        )
    ).eval()
    prefix = [2, 5, 6, 7]
    segments = [[[10, 11, 12, 20, 3], [13, 21, 3]], [[14, 15, 16, 17, 22, 3]]]
    packed = pack(prefix, segments)
    with torch.no_grad():
        logits = model(
            input_ids=packed.input_ids,
            attention_mask=packed.mask,
            position_ids=packed.position_ids,
        ).logits[packed.rows, packed.columns]
        alone = [
            model(input_ids=torch.tensor([prefix + segment])).logits[0, -3:-1]
            for some in segments
            for segment in some
        ]
    assert packed.targets.tolist() == [20, 3, 21, 3, 22, 3]
    torch.testing.assert_close(logits, torch.cat(alone), atol=1e-5, rtol=1e-5)
