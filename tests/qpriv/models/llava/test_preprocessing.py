import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close
from torchvision.transforms import v2
from transformers import LlavaProcessor

from qpriv.datasets.sample import ArrayImage
from qpriv.errors import ConfigError, DataError, ModelError
from qpriv.models.decoder.sequences import IGNORED
from qpriv.models.llava.vision_language import VisionLanguageModel
from tests.tiny_models import random_backbone, random_samples


@pytest.fixture(scope="module")
def preprocessor(model):
    return model.preprocessor


@pytest.fixture(scope="module")
def processor():
    return LlavaProcessor.from_pretrained(random_backbone() / "llava")


def with_image(pixels):
    return replace(random_samples(1)[0], image=ArrayImage(pixels.astype(np.uint8)))


def wide_picture():
    """160 x 80: scaled by 0.8 to 128 x 64, of which the columns 32 to 96 are the crop."""
    return np.random.default_rng(0).integers(0, 256, (80, 160, 3))


def test_pixels_are_those_of_the_checkpoints_own_processor(preprocessor, processor):
    sample = with_image(wide_picture())
    own = processor(images=sample.image.load(), text="<image>", return_tensors="pt")
    assert torch.equal(preprocessor([sample]).pixel_values, own["pixel_values"])


def test_both_encoders_see_the_same_crop(preprocessor):
    sample = with_image(wide_picture())
    batch = preprocessor([sample])
    image = sample.image.load().resize((128, 64), Image.Resampling.BICUBIC)
    crop = image.crop((32, 0, 96, 64))
    expected = v2.Compose(
        [
            v2.ToImage(),
            v2.Resize((32, 32), v2.InterpolationMode.BICUBIC, antialias=True),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )(crop)
    # the two paths round to 8 bits at other places: three levels of 255, over a deviation of .22
    assert_close(batch.sensitivity_pixels[0], expected, rtol=0, atol=3 / 255 / 0.22)


def test_crops_undo_the_normalisation(preprocessor):
    sample = random_samples(1)[0]
    crop = preprocessor.crops(preprocessor.pixels([sample]))[0]
    expected = torch.from_numpy(np.array(sample.image.load())).permute(2, 0, 1) / 255
    assert_close(crop, expected, rtol=0, atol=1e-5)


def test_prompt_ids_are_those_of_the_checkpoints_own_processor(preprocessor, processor):
    samples = random_samples(4)
    batch = preprocessor(samples)
    for row, sample in enumerate(samples):
        text = f"USER: <image>\n{sample.question} ASSISTANT:"
        own = processor(images=sample.image.load(), text=text, return_tensors="pt")["input_ids"][0]
        prompt = batch.prompt_ids[row][batch.prompt_mask[row].bool()]
        assert torch.equal(prompt, own)
        start = int(batch.prompt_mask[row].argmax())
        assert batch.prompt_mask[row, start:].all()  # padding on the left only


def test_labels_are_answer_and_end_token(preprocessor):
    samples = random_samples(4)
    batch = preprocessor(samples)
    for row, sample in enumerate(samples):
        gold = batch.labels[row][batch.labels[row] != IGNORED]
        assert gold[-1] == preprocessor.tokenizer.eos_token_id
        assert preprocessor.tokenizer.decode(gold[:-1]) == sample.answer
        real = batch.attention_mask[row].bool()
        assert torch.equal(batch.input_ids[row][real][-len(gold) :], gold)
        assert (batch.labels[row][~real] == IGNORED).all()
        assert (batch.input_ids[row] == preprocessor.image_token).sum() == 64


def test_an_empty_answer_leaves_the_end_token(preprocessor):
    batch = preprocessor([replace(random_samples(1)[0], answer="")])
    gold = batch.labels[batch.labels != IGNORED]
    assert gold.tolist() == [preprocessor.tokenizer.eos_token_id]


def test_survives_pickling(preprocessor):
    samples = random_samples(3)
    copy = pickle.loads(pickle.dumps(preprocessor))
    assert torch.equal(copy(samples).sensitivity_pixels, preprocessor(samples).sensitivity_pixels)
    assert torch.equal(copy(samples).input_ids, preprocessor(samples).input_ids)


def test_long_questions_are_cut_for_the_text_encoder_only(preprocessor):
    sample = replace(random_samples(1)[0], question="what is " * 20)
    batch = preprocessor([sample])
    assert batch.question_ids.shape[1] == 16
    assert batch.input_ids.shape[1] > 64 + 40


def test_braces_in_a_question_are_text(preprocessor):
    sample = replace(random_samples(1)[0], question="what is {question} {0} ?")
    assert "{0}" in preprocessor.prompt_text(sample)
    assert len(preprocessor([sample])) == 1


def test_an_image_word_in_a_question_is_refused(preprocessor):
    sample = replace(random_samples(1)[0], question="<image> what is this ?")
    with pytest.raises(DataError, match="holds the text <image>") as caught:
        preprocessor([sample])
    assert sample.key in str(caught.value)


def test_a_text_longer_than_the_model_takes_is_refused(preprocessor):
    sample = replace(random_samples(1)[0], question="what " * 300)
    with pytest.raises(DataError, match="tokens, the model takes 256"):
        preprocessor([sample])
    with pytest.raises(DataError, match="tokens, the model takes 256"):
        preprocessor.check_text(sample)
    with pytest.raises(DataError, match="holds the text <image>"):
        preprocessor.check_text(replace(sample, question="what ?", answer="an <image>"))
    preprocessor.check_text(replace(sample, question="what ?"))


@pytest.mark.parametrize("prompt", ["{question}", "<image> only", "<image> <image> {question}"])
def test_a_prompt_without_its_parts_is_refused(prompt):
    with pytest.raises(ConfigError, match="prompt must hold"):
        VisionLanguageModel.from_pretrained(str(random_backbone()), prompt=prompt)


def test_a_prompt_that_ends_inside_a_token_is_refused(model, monkeypatch):
    preprocessor = pickle.loads(pickle.dumps(model.preprocessor))
    tokens = preprocessor._tokens
    # a tokenizer that merges the colon with what follows
    monkeypatch.setattr(
        preprocessor, "_tokens", lambda text, sample: tokens(text.replace(": red", "red"), sample)
    )
    with pytest.raises(ModelError, match="spans the border"):
        preprocessor([random_samples(1)[0]])


# boxes


def test_coverage_without_scaling(preprocessor):
    coverage = preprocessor.patch_coverage([(0, 0, 8, 8), (8, 0, 12, 8), (4, 0, 8, 8)], (64, 64))
    assert coverage[:3].tolist() == [1.0, 0.5, 0.0]
    assert coverage.sum() == 1.5


def test_coverage_follows_scale_and_crop(preprocessor):
    # of the 160 x 80 picture, column 40 becomes the crop's first
    coverage = preprocessor.patch_coverage([(40, 0, 50, 10)], (160, 80)).view(8, 8)
    assert coverage[0, 0] == 1.0
    assert coverage.sum() == 1.0
    assert preprocessor.patch_coverage([(0, 0, 40, 80)], (160, 80)).sum() == 0.0
    assert preprocessor.patch_coverage([], (160, 80)).sum() == 0.0


def test_coverage_marks_the_patches_that_hold_the_pixels(preprocessor):
    pixels = np.zeros((90, 200, 3))
    box = (70, 20, 120, 61)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    crop = preprocessor.crops(preprocessor.pixels([with_image(pixels)]))[0, 0]
    brightness = crop.view(8, 8, 8, 8).mean(dim=(1, 3)).flatten()
    coverage = preprocessor.patch_coverage([box], (200, 90))
    assert_close(coverage, brightness, rtol=0, atol=0.13)  # a pixel column of eight
