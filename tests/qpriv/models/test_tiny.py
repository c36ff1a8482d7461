"""The weights in the package, opened as anybody opens a released checkpoint."""

from collections import defaultdict
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file
from transformers import (
    CLIPModel,
    CLIPProcessor,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

import qpriv.models
from qpriv.datasets.easy_vqa import EasyVQA
from qpriv.datasets.face_scenes import FaceScenes
from qpriv.datasets.scenes import COLORS, KINDS

TINY = Path(qpriv.models.__file__).parent / "tiny"
PROMPT = "USER: <image>\n{question} ASSISTANT:"


@pytest.fixture(scope="module")
def llava():
    model = LlavaForConditionalGeneration.from_pretrained(TINY / "llava", dtype=torch.float32)
    return model.eval(), LlavaProcessor.from_pretrained(TINY / "llava")


def test_the_folders_are_small_halves():
    folders = [TINY / name for name in ("clip", "dino", "llava")]
    assert sum(path.stat().st_size for folder in folders for path in folder.iterdir()) < 12e6
    for folder in folders:
        weights = load_file(folder / "model.safetensors")
        assert all(value.dtype == torch.float16 for value in weights.values())


def test_it_answers_questions_about_people_it_never_saw(llava):
    model, processor = llava
    samples = FaceScenes("test", 60, 0, "scenes", 2).samples
    prompts = [PROMPT.format(question=sample.question) for sample in samples]
    images = [sample.image.load() for sample in samples]
    inputs = processor(text=prompts, images=images, padding=True, padding_side="left",
                       return_tensors="pt")  # fmt: skip
    with torch.no_grad():
        output = model.generate(**inputs, max_new_tokens=4, do_sample=False)
    answers = processor.batch_decode(
        output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )
    right = defaultdict(list)
    for answer, sample in zip(answers, samples, strict=True):
        right[sample.meta["question_type"]].append(answer == sample.answer)
        right["all"].append(answer == sample.answer)
    share = {kind: sum(rights) / len(rights) for kind, rights in right.items()}
    assert share["all"] > 0.8, share
    assert share["color"] > 0.9, share


def test_clip_matches_scenes_with_their_captions():
    model = CLIPModel.from_pretrained(TINY / "clip", dtype=torch.float32).eval()
    processor = CLIPProcessor.from_pretrained(TINY / "clip")
    samples = [s for s in FaceScenes("test", 200).samples if s.meta["question_type"] == "color"]
    color = {sample.image_id: sample for sample in samples if sample.question.startswith("what")}
    single = [s for s in color.values() if sum(o.image_id == s.image_id for o in samples) == 1]
    colors, kinds = list(COLORS), list(KINDS)
    texts = [f"a {color} {kind} and a person" for color in colors for kind in kinds]
    inputs = processor(
        text=texts, images=[s.image.load() for s in single], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        best = model(**inputs).logits_per_image.argmax(1).tolist()
    found = [texts[index].split()[1] for index in best]
    hits = [answer == sample.answer for answer, sample in zip(found, single, strict=True)]
    assert len(hits) > 30
    assert sum(hits) / len(hits) > 0.8


def test_dino_opens_in_timm():
    model = timm.create_model(f"local-dir:{TINY / 'dino'}", pretrained=True)
    stored = load_file(TINY / "dino" / "model.safetensors")
    state = model.state_dict()
    assert set(state) == set(stored)
    assert all(torch.equal(state[name], value.float()) for name, value in stored.items())
    features = model.eval().forward_features(torch.randn(2, 3, 64, 64))
    assert features.shape == (2, 65, 96)


def test_every_word_of_the_embedded_sets_is_known(llava):
    tokenizer = llava[1].tokenizer
    sets = (
        FaceScenes("val", 200),
        FaceScenes("val", 5, 0, "memorisation"),
        EasyVQA("test"),
    )
    texts = {PROMPT.format(question=s.question) + f" {s.answer}" for d in sets for s in d.samples}
    for text in texts:
        assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"], text
    assert tokenizer("zebra")["input_ids"][-1] == tokenizer.unk_token_id


def test_prompt_layout(llava):
    tokenizer = llava[1].tokenizer
    text = PROMPT.format(question="What color is the circle?") + " red" + tokenizer.eos_token
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    assert " ".join(tokens) == (
        "<s> user : <image> what color is the circle ? assistant : red </s>"
    )
