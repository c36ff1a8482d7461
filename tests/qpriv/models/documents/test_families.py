"""What bites in each family, held by a test: on random weights where wiring is all that matters."""

import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageFont
from torch.nn import functional as F
from transformers import DonutProcessor
from transformers.models.pix2struct import image_processing_pix2struct

from qpriv.errors import ConfigError, ModelError
from qpriv.models.documents.base import IGNORED
from qpriv.models.documents.donut import Donut
from qpriv.models.documents.loading import READER, load_document_model
from qpriv.models.documents.lora import add_document_lora
from qpriv.models.documents.tiny_reader import build_processor, build_reader
from qpriv.models.documents.wiring import tiny_paligemma, tiny_pix2struct

QUESTIONS = ["what is the name ?", "tell me the ticket number of Ann .", "the date , please ."]
ANSWERS = ["Ann Lee", "AB1234", "yes"]


def noise_image(size=(128, 64), seed=0):
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), np.uint8)
    return Image.fromarray(pixels)


def random_donut(seed=0):
    torch.manual_seed(seed)
    processor = build_processor((64, 128))
    return Donut(build_reader(processor), processor, max_tokens=64)


FAMILIES = {
    "donut": random_donut,
    "pix2struct": lambda: tiny_pix2struct(max_patches=32),
    "paligemma": tiny_paligemma,
}


@pytest.fixture(params=FAMILIES, scope="module")
def model(request):
    return FAMILIES[request.param]().eval()


def overfit(model, images, questions, answers, steps, rate=3e-3):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    pages = [model.page(image) for image in images]
    tokens = model.tokenise(questions, answers)
    for _ in range(steps):
        encoded = model.encode(pages, questions, list(range(len(pages))))
        loss = model.loss(model.logits(encoded, tokens), tokens)
        optimizer.zero_grad()
        loss.backward()
        # unclipped and faster, whether it converges depends on the number of threads
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if loss < 0.02:
            return model.eval()
    raise AssertionError(f"not learned by heart in {steps} steps: loss {loss:.3f}")


@pytest.fixture(params=FAMILIES, scope="module")
def fitted(request):
    """A model that answers three questions about one page, which differ in the question alone."""
    image = noise_image()
    return overfit(FAMILIES[request.param](), [image] * 3, QUESTIONS, ANSWERS, 600), image


def test_the_question_alone_decides(fitted):
    model, image = fitted
    encoded = model.encode([model.page(image)], QUESTIONS, [0, 0, 0])
    said = model.answer(encoded, QUESTIONS)
    assert [answer.text for answer in said] == ANSWERS
    assert all(answer.ended for answer in said)


def test_batched_equals_one_by_one(fitted):
    model, image = fitted
    questions = [*QUESTIONS, "what is the name of Bob ?"]
    together = model.answer(model.encode([model.page(image)], questions, [0] * 4), questions, 8)
    for number, question in enumerate(questions):
        alone = model.answer(model.encode([model.page(image)], [question], [0]), [question], 8)
        assert alone[0] == together[number]


def test_one_forward_pass_tells_what_decoding_would_say(fitted):
    model, image = fitted
    answers = ["Ann Lee", "AB1239", "ye"]  # right, wrong at its end, right but for its end
    with torch.no_grad():
        encoded = model.encode([model.page(image)], QUESTIONS, [0, 0, 0])
        tokens = model.tokenise(QUESTIONS, answers)
        replies = model.replies(model.logits(encoded, tokens), tokens)
    said = [answer.text for answer in model.answer(encoded, QUESTIONS)]
    assert replies.exact.tolist() == [s == a for s, a in zip(said, answers, strict=True)]
    assert replies.exact.tolist() == [True, False, False]


def test_banned_beginnings_and_beams(fitted):
    model, image = fitted
    encoded = model.encode([model.page(image)], QUESTIONS[:1], [0])
    ((banned,),) = model.hypotheses(encoded, QUESTIONS[:1], banned=["Ann Lee"])
    assert not banned.text.startswith("A")
    (beams,) = model.hypotheses(encoded, QUESTIONS[:1], beams=2)
    assert len(beams) == 2 and beams[0].text == "Ann Lee" != beams[1].text


def test_answers_are_cut_at_the_limit_and_say_so(fitted):
    model, image = fitted
    encoded = model.encode([model.page(image)], QUESTIONS[:1], [0])
    (cut,) = model.answer(encoded, QUESTIONS[:1], max_new_tokens=3)
    assert not cut.ended and "Ann Lee".startswith(cut.text)


def test_loss_is_plain_cross_entropy_over_answer_and_end(model):
    page = model.page(noise_image())
    tokens = model.tokenise(QUESTIONS, ANSWERS)
    with torch.no_grad():
        logits = model.logits(model.encode([page], QUESTIONS, [0, 0, 0]), tokens)
    log_probs = logits.double().log_softmax(-1)
    terms = []
    for row, (question, answer) in enumerate(zip(QUESTIONS, ANSWERS, strict=True)):
        target = [*model.answer_ids(answer), *model.end_ids]
        begin = len(model.prompt_ids(question)) - 1
        terms += [log_probs[row, begin + n, token] for n, token in enumerate(target)]
        scored = tokens.labels[row] != IGNORED
        assert scored.sum() == len(target)  # padding is not scored, the end is
    assert torch.allclose(model.loss(logits, tokens).double(), -torch.stack(terms).mean())


def test_log_probability_of_an_answer_counts_one_end(model):
    page = model.page(noise_image())
    tokens = model.tokenise(QUESTIONS[:1], ANSWERS[:1])
    with torch.no_grad():
        logits = model.logits(model.encode([page], QUESTIONS[:1], [0]), tokens)
    log_probs = logits[0].log_softmax(-1)
    begin = len(model.prompt_ids(QUESTIONS[0])) - 1
    target = [*model.answer_ids(ANSWERS[0]), model.end_ids[0]]
    expected = sum(log_probs[begin + n, token] for n, token in enumerate(target))
    assert torch.allclose(model.replies(logits, tokens).log_prob[0], expected, atol=1e-4)


def test_questions_that_are_too_long_are_named(model):
    with pytest.raises(ModelError, match="limit is"):
        model.tokenise(["what ?"], ["x" * 200])
    assert not model.fits("what ?", "x" * 200) and model.fits("what ?", "x")


def test_lower_resolution_changes_pages_but_not_their_size(model):
    page = model.page(noise_image())
    try:
        model.resolution = 0.25
        (reduced,) = model.scanned([page])
    finally:
        model.resolution = 1.0
    assert reduced.shape == page.shape
    assert reduced.std() < 0.6 * page.float().std()


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_sit_in_the_text_decoder_alone(family):
    model = FAMILIES[family]()
    page = model.page(noise_image())
    tokens = model.tokenise(QUESTIONS, ANSWERS)
    with torch.no_grad():
        before = model.eval().logits(model.encode([page], QUESTIONS, [0, 0, 0]), tokens)
    add_document_lora(model, rank=4, alpha=8)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained and all("lora_" in n and ("decoder" in n or "language" in n) for n in trained)
    with torch.no_grad():
        after = model.eval().logits(model.encode([page], QUESTIONS, [0, 0, 0]), tokens)
    assert torch.equal(before, after)  # B starts at zero
    with pytest.raises(ConfigError, match="already"):
        add_document_lora(model, rank=4, alpha=8)


class TestDonut:
    def test_stock_labels_hide_the_question_and_ours_do_not(self):
        # labels alone: the library turns the masked question into padding
        model = random_donut().eval()
        pixels = model.normalised([model.page(noise_image())])
        network = model.network
        pad = model.tokenizer.pad_token_id
        stock, ours = [], []
        for question in ("what is the name ?", "find the date , please ."[:-9] + "as name ?"):
            prompt, answer = model.prompt_ids(question), model.answer_ids("Ann")
            labels = torch.tensor([[IGNORED] * 8 + answer])
            stock.append(network(pixel_values=pixels, labels=labels).loss.item())
            tokens = model.tokenise([question], ["Ann"])
            encoded = model.encode([model.page(noise_image())], [question], [0])
            ours.append(model.loss(model.logits(encoded, tokens), tokens).item())
            assert len(prompt) > 2 and pad != IGNORED
        assert stock[0] == stock[1]
        assert ours[0] != ours[1]

    def test_stock_loss_is_not_shifted_twice(self):
        model = random_donut().eval()
        tokens = model.tokenise(QUESTIONS[:1], ANSWERS[:1])
        pixels = model.normalised([model.page(noise_image())])
        output = model.network(
            pixel_values=pixels, decoder_input_ids=tokens.ids, labels=tokens.labels
        )
        by_hand = F.cross_entropy(output.logits[0], tokens.labels[0])
        assert torch.allclose(output.loss, by_hand)

    def test_pages_equal_the_processors(self):
        model, image = random_donut(), noise_image((300, 100))
        expected = model.processor.image_processor(image, return_tensors="pt")["pixel_values"]
        assert torch.allclose(model.normalised([model.page(image)]), expected, atol=1e-6)

    def test_a_vocabulary_without_a_bare_digit_is_noticed(self):
        # as in the official checkpoint, in which A1 becomes A<unk>
        tokenizer = build_processor((64, 128)).tokenizer
        vocabulary = [(t, -2.0) for t in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
        kept = [(t, s) for t, s in vocabulary if t != "1" and not t.startswith(("<s_", "</s_"))]
        poor = type(tokenizer)(vocab=[*kept, ("▁1", -1.0)])
        poor.add_tokens(["<s_docvqa>", "<s_answer>", "</s_answer>"], special_tokens=True)
        images = build_processor((64, 128)).image_processor
        processor = DonutProcessor(images, poor)
        model = Donut(build_reader(processor), processor)
        assert not model.spells("A1") and model.spells("A2") and model.spells("1")

    def test_yes_and_no_are_tokens_of_their_own(self):
        model = random_donut()
        assert model.tokenizer.convert_ids_to_tokens(model.answer_ids("yes")) == ["<yes/>"]
        assert model.decode(model.answer_ids("no")) == "no"
        assert model.spells("yes")

    def test_the_embedded_reader_is_loaded_like_any_folder(self, tmp_path):
        model = load_document_model("tiny").eval()
        model.network.save_pretrained(tmp_path)
        model.processor.save_pretrained(tmp_path)
        again = load_document_model(str(tmp_path)).eval()
        page = model.page(noise_image())
        tokens = model.tokenise(QUESTIONS, ANSWERS)
        with torch.no_grad():
            first, second = (
                m.logits(m.encode([page], QUESTIONS, [0, 0, 0]), tokens) for m in (model, again)
            )
        assert torch.equal(first, second)
        assert sum(f.stat().st_size for f in READER.iterdir()) < 2.5e6

    def test_the_processor_follows_the_encoder(self, tmp_path):
        # an encoder pads pages of another size and says nothing
        model = random_donut()
        model.network.save_pretrained(tmp_path)
        model.processor.image_processor.size = {"height": 32, "width": 32}
        model.processor.save_pretrained(tmp_path)
        assert load_document_model(str(tmp_path)).page(noise_image()).shape == (3, 64, 128)


class TestPix2Struct:
    def test_the_header_is_drawn_offline_as_the_processor_would(self, monkeypatch, tmp_path):
        model, image = tiny_pix2struct(), noise_image()
        font = tmp_path / "font.ttf"
        font.write_bytes(ImageFont.load_default(36).font_bytes)

        class Hub:
            def hf_hub_download(self, *_):
                return str(font)

        monkeypatch.setattr(image_processing_pix2struct, "hf_api", Hub)
        images = model.processor.image_processor
        stock = images(image, header_text=QUESTIONS[0], is_vqa=True, return_tensors="pt")
        monkeypatch.setattr(image_processing_pix2struct, "hf_api", None)  # no hub from here on
        drawn = model.with_header(model.page(image), QUESTIONS[0])
        ours = images([drawn], is_vqa=False, return_tensors="pt")
        assert torch.equal(stock["flattened_patches"], ours["flattened_patches"])

    def test_short_questions_become_tall_headers(self):
        model = tiny_pix2struct()
        page = model.page(noise_image((850, 1100)))
        assert model.header_share(page, "Q?") > 2 * model.header_share(page, "word " * 14)

    def test_more_patches_by_setting(self):
        model = load_document_model("tiny-pix2struct", max_patches=24)
        encoded = model.encode([model.page(noise_image())], ["what ?"], [0])
        assert encoded.states.shape[1] == 24


class TestPaliGemma:
    def test_the_prefix_sees_itself_in_both_directions(self):
        # another last word of the question changes what stands at its first
        model = tiny_paligemma().eval()
        encoded = model.encode([model.page(noise_image())], ["a b", "a c"], [0, 0])
        tokens = model.tokenise(["a b", "a c"], ["x", "x"])
        with torch.no_grad():
            logits = model.logits(encoded, tokens)
        assert not torch.allclose(logits[0, 0], logits[1, 0])

    def test_prompts_equal_the_processors(self):
        model = tiny_paligemma()
        stock = model.processor(images=noise_image(), text="<image>what ?", suffix="x")
        own = [*model.prompt_ids("what ?"), *model.answer_ids("x"), *model.end_ids]
        assert stock["input_ids"][0] == own


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"name": "tiny", "resolution": 1.5}, ConfigError, "resolution"),
        ({"name": "tiny", "max_patches": 5}, ConfigError, "max_patches"),
        ({"name": "tiny-paligemma", "image_size": (1, 1)}, ConfigError, "image_size"),
        ({"name": "/no/such/folder"}, ModelError, "cannot load"),
    ],
)
def test_impossible_settings(settings, error, message):
    with pytest.raises(error, match=message):
        load_document_model(**settings)


def test_another_kind_of_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match="a bert model"):
        load_document_model(str(tmp_path))


def test_fonts_come_as_bytes():
    assert ImageFont.truetype(io.BytesIO(ImageFont.load_default(36).font_bytes), 10)
