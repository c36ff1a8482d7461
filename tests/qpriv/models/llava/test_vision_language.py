import copy
import pickle
from dataclasses import replace

import msgspec
import pytest
import torch
from torch.testing import assert_close
from transformers import CLIPModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from qpriv.errors import ModelError
from qpriv.models.decoder.sequences import IGNORED
from qpriv.models.features import FeatureSizes
from qpriv.pruning import PruningDecision
from tests import tiny_models
from tests.tiny_models import random_backbone, random_model, random_samples

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def decision(*rows: list[int], merged=None) -> PruningDecision:
    return PruningDecision(
        kept=tuple(torch.tensor(row, dtype=torch.long) for row in rows),
        num_patches=tiny_models.NUM_PATCHES,
        ratio=torch.zeros(len(rows)),
        merged=merged,
    )


RAGGED = decision(list(range(0, 64, 2)), [3, 5, 63], [], list(range(64)))


def test_sizes(model):
    assert model.num_layers == len(model.decoder_layers) == tiny_models.NUM_LAYERS
    assert model.hidden_size == tiny_models.HIDDEN_SIZE
    assert model.grid == (8, 8)
    assert model.num_patches == 64
    assert model.feature_sizes == FeatureSizes(64, 64, 48, 32)
    assert model.lm_head.weight.shape[1] == 64


# encoding


def test_encode_sees_what_the_stock_encoders_see(model, batch, features):
    stock = model.stock.model.get_image_features(batch.pixel_values)
    projected = model.projector(features.patches)
    assert torch.equal(projected, torch.stack(list(stock.pooler_output)))
    tower = model.vision_tower(batch.pixel_values)
    assert torch.equal(features.pooled, tower.pooler_output)
    clip = CLIPModel.from_pretrained(random_backbone() / "clip")
    text = clip.text_model(batch.question_ids, attention_mask=batch.question_mask)
    assert torch.equal(features.question, text.pooler_output)
    vit = model.sensitivity_encoder.vit
    tokens = vit.forward_features(batch.sensitivity_pixels)
    assert torch.equal(features.sensitivity, tokens[:, vit.num_prefix_tokens :])
    assert features.sizes == model.feature_sizes
    assert features.sensitivity.shape[1] == 4 * 4
    assert len(features) == 4


def test_question_vector_does_not_depend_on_its_padding(model, batch, features):
    shortest = int(batch.question_mask.sum(dim=1).argmin())
    alone = model.encode(model.preprocessor([batch.samples[shortest]]))
    assert_close(alone.question[0], features.question[shortest], **CLOSE)


def test_features_carry_no_gradient(model, batch):
    with torch.enable_grad():
        assert not model.encode(batch).patches.requires_grad


def test_encoders_stay_in_evaluation_mode():
    model = random_model()
    model.train()
    encoders = (model.vision_tower, model.text_encoder, model.sensitivity_encoder, model.projector)
    assert not any(module.training for part in encoders for module in part.modules())
    assert model.training and model.decoder_layers[0].training


def test_nothing_trains_before_lora(model):
    assert not any(weight.requires_grad for weight in model.parameters())


# keeping everything


@pytest.mark.parametrize("keep_all", [None, decision(*[list(range(64))] * 4)])
def test_keep_all_is_bit_equal_to_the_stock_model(model, batch, features, keep_all):
    output = model(batch, features, keep_all)
    stock = model.stock(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        pixel_values=batch.pixel_values,
        labels=batch.labels,
    )
    assert torch.equal(output.logits, stock.logits)
    assert torch.equal(output.loss, stock.loss)
    assert torch.equal(output.labels, batch.labels)


def test_features_are_encoded_where_not_given(model, batch, features):
    assert torch.equal(model(batch).logits, model(batch, features).logits)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_keep_all_generates_what_the_stock_model_does(model, batch, features, num_beams):
    stock = model.stock.generate(
        input_ids=batch.prompt_ids,
        attention_mask=batch.prompt_mask,
        pixel_values=batch.pixel_values,
        max_new_tokens=6,
        num_beams=num_beams,
        do_sample=False,
    )
    expected = model.preprocessor.tokenizer.batch_decode(
        stock[:, batch.prompt_ids.shape[1] :], skip_special_tokens=True
    )
    assert model.answer(batch, features, max_new_tokens=6, num_beams=num_beams) == expected


# pruning


def test_dropping_equals_masking_the_full_sequence(model, batch, features):
    """The oracle: dropped patches leave no trace if every other token keeps its position."""
    pruned = model(batch, features, RAGGED, positions="original")
    mask = batch.attention_mask.clone()
    start = model(batch, features).image_spans[0][0]
    mask[:, start : start + 64] = RAGGED.mask.long()
    full = model.stock(
        input_ids=batch.input_ids,
        attention_mask=mask,
        position_ids=torch.arange(mask.shape[1]).expand_as(mask),
        pixel_values=batch.pixel_values,
        labels=batch.labels,
    )
    assert_close(pruned.loss, full.loss, **CLOSE)
    for row, keep in enumerate(mask.bool()):
        real = pruned.sequences.attention_mask[row].bool()
        assert_close(pruned.logits[row][real], full.logits[row][keep], **CLOSE)


def test_compact_positions_are_another_function(model, batch, features):
    compact = model(batch, features, RAGGED)
    original = model(batch, features, RAGGED, positions="original")
    assert (compact.logits - original.logits).abs().max() > 1e-2


def test_a_batch_equals_its_samples_one_by_one(model, batch, features):
    together = model(batch, features, RAGGED)
    for row in range(4):
        one = slice(row, row + 1)
        alone = model(batch[one], features[one], decision(RAGGED.kept[row].tolist()))
        real = together.sequences.attention_mask[row].bool()
        mine = alone.sequences.attention_mask[0].bool()
        assert_close(together.logits[row][real], alone.logits[0][mine], **CLOSE)
        assert alone.image_spans[0] == together.image_spans[row]


@pytest.mark.parametrize("num_beams", [1, 3])
def test_batched_answers_equal_single_ones(model, batch, features, num_beams):
    """Rows of different length are padded left, and the cache grows behind the padding."""
    together = model.answer(batch, features, RAGGED, max_new_tokens=8, num_beams=num_beams)
    for row in range(4):
        one = slice(row, row + 1)
        (alone,) = model.answer(
            batch[one],
            features[one],
            decision(RAGGED.kept[row].tolist()),
            max_new_tokens=8,
            num_beams=num_beams,
        )
        assert alone == together[row]


def test_greedy_answer_equals_a_loop_without_cache(model, batch, features):
    one, kept = slice(1, 2), decision([3, 5, 63])
    ids = batch.prompt_ids[1][batch.prompt_mask[1].bool()]
    start = int((ids == model.preprocessor.image_token).nonzero()[0])
    ids = torch.cat((ids[: start + 3], ids[start + 64 :]))
    image = model.projector(features.patches[1, [3, 5, 63]])
    written: list[int] = []
    while len(written) < 8:
        sequence = torch.cat((ids, torch.tensor(written, dtype=torch.long)))[None]
        logits = model.stock(
            input_ids=sequence,
            attention_mask=torch.ones_like(sequence),
            mm_encoder_outputs={"image": BaseModelOutputWithPooling(pooler_output=[image])},
        ).logits
        written.append(int(logits[0, -1].argmax()))
        if written[-1] == model.preprocessor.tokenizer.eos_token_id:
            break
    expected = model.preprocessor.tokenizer.decode(written, skip_special_tokens=True)
    assert model.answer(batch[one], features[one], kept, max_new_tokens=8) == [expected]


def test_left_and_right_padding_agree(model, batch, features):
    """Training pads right, generation pads left: the next token must be the same."""
    first = model.answer(batch, features, RAGGED, max_new_tokens=1)
    output = model(batch, features, RAGGED)
    starts = (output.labels != IGNORED).long().argmax(dim=1)
    ids = output.logits[torch.arange(4), starts - 1].argmax(dim=-1)
    decode = model.preprocessor.tokenizer.decode
    assert first == [decode([int(token)], skip_special_tokens=True) for token in ids]


def test_keeping_nothing_at_all_works(model, batch, features):
    nothing = decision([], [], [], [])
    output = model(batch, features, nothing)
    assert output.loss.isfinite()
    assert output.logits.shape[1] == batch.input_ids.shape[1] - 64
    assert len(model.answer(batch, features, nothing)) == 4


def test_merged_tokens_enter_in_place_of_patches(model, batch, features):
    rows = [kept.tolist() for kept in RAGGED.kept]
    gathered = tuple(features.patches[row, kept] for row, kept in enumerate(RAGGED.kept))
    same = model(batch, features, decision(*rows, merged=gathered))
    assert torch.equal(same.logits, model(batch, features, RAGGED).logits)
    fewer = tuple(tokens[: len(tokens) // 2] for tokens in gathered)
    output = model(batch, features, decision(*rows, merged=fewer))
    assert [stop - start for start, stop in output.image_spans] == [16, 1, 0, 32]
    assert len(model.answer(batch, features, decision(*rows, merged=fewer))) == 4


def test_more_merged_tokens_than_patches_are_refused(model, batch, features):
    merged = (torch.zeros(65, 64),) * 4
    with pytest.raises(ModelError, match="65 merged tokens for 64 patches"):
        model(batch, features, decision([], [], [], [], merged=merged))


def test_gradients_reach_the_kept_patches_only(model, batch, features):
    patches = features.patches.clone().requires_grad_()
    model(batch, replace(features, patches=patches), RAGGED).loss.backward()
    touched = patches.grad.abs().sum(dim=-1) > 0
    assert torch.equal(touched, RAGGED.mask)


# scores


def slow_scores(model, batch, features, row):
    """One sample, token by token, from the plain forward pass."""
    one = slice(row, row + 1)
    output = model(batch[one], features[one], decision(RAGGED.kept[row].tolist()))
    log_probs = output.logits[0].log_softmax(dim=-1)
    labels = output.labels[0].tolist()
    steps = [(at, label) for at, label in enumerate(labels) if label != IGNORED]
    golds = [float(log_probs[at - 1, label]) for at, label in steps]
    first = log_probs[steps[0][0] - 1]
    return {
        "log_prob": sum(golds),
        "mean_log_prob": sum(golds) / len(golds),
        "num_tokens": len(golds),
        "first_log_prob": golds[0],
        "first_confidence": float(first.exp().max()),
        "first_entropy": float(-(first.exp() * first).sum()),
        "correct": all(int(log_probs[at - 1].argmax()) == label for at, label in steps),
    }


def test_answer_scores_equal_a_slow_loop(model, batch, features):
    scores = model.answer_log_probs(batch, features, RAGGED)
    for row in range(4):
        for name, value in slow_scores(model, batch, features, row).items():
            assert getattr(scores, name)[row].item() == pytest.approx(value, rel=1e-3), name


def test_mean_log_prob_is_minus_the_training_loss(model, batch, features):
    one = slice(2, 3)
    scores = model.answer_log_probs(batch[one], features[one])
    loss = model(batch[one], features[one]).loss
    assert scores.mean_log_prob.item() == pytest.approx(-loss.item(), rel=1e-5)


def test_correct_means_that_greedy_decoding_writes_the_gold_answer(model, batch):
    one = batch[:1]
    start = one.prompt_ids.shape[1]
    written = model.stock.generate(
        input_ids=one.prompt_ids,
        attention_mask=one.prompt_mask,
        pixel_values=one.pixel_values,
        max_new_tokens=5,
        do_sample=False,
    )
    labels = torch.full_like(written, IGNORED)
    labels[:, start:] = written[:, start:]
    mask = torch.cat((one.prompt_mask, torch.ones_like(written[:, start:])), dim=1)
    gold = msgspec.structs.replace(one, input_ids=written, attention_mask=mask, labels=labels)
    assert model.answer_log_probs(gold).correct.tolist() == [True]
    labels[:, -1] += 1
    assert model.answer_log_probs(gold).correct.tolist() == [False]


def test_answering_ignores_and_restores_the_training_mode():
    model = random_model()
    batch = model.preprocessor(random_samples(2))
    model.add_lora(rank=4, dropout=0.9)
    for name, weight in model.llava.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    model.eval()
    expected, scores = model.answer(batch), model.answer_log_probs(batch)
    model.train()
    modes = [module.training for module in model.modules()]
    assert model.answer(batch) == expected
    assert torch.equal(model.answer_log_probs(batch).log_prob, scores.log_prob)
    assert [module.training for module in model.modules()] == modes


# the whole


def test_a_copy_answers_alike(model, batch, features):
    assert model.answer(batch, features) == copy.deepcopy(model).answer(batch, features)


def test_fingerprint_follows_weights_and_crop():
    model = random_model()
    before = model.encoder_fingerprint()
    assert before == random_model().encoder_fingerprint()
    model.add_lora(rank=4)
    assert model.encoder_fingerprint() == before  # features do not depend on the decoder
    with torch.no_grad():
        model.sensitivity_encoder.vit.pos_embed[0, 0, 0] += 1e-3
    assert model.encoder_fingerprint() != before


def test_features_index_by_rows(features):
    rows = torch.tensor([2, 0])
    picked = features[rows]
    assert torch.equal(picked.patches, features.patches[rows])
    assert torch.equal(picked.question, features.question[rows])
    assert picked.grid == features.grid
    assert picked.cls_attention is None


def test_batches_index_move_and_pickle(batch):
    picked = batch[torch.tensor([3, 1])]
    assert [sample.qid for sample in picked.samples] == ["3", "1"]
    assert torch.equal(picked.input_ids, batch.input_ids[[3, 1]])
    assert len(batch[1:3]) == 2
    assert batch.to("cpu").samples == batch.samples
    assert torch.equal(pickle.loads(pickle.dumps(batch)).labels, batch.labels)
