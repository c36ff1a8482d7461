"""Asking for erased answers: contexts, E by one forward pass, ranking, blocking, degenerate models."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from qpriv.attacks.extraction.asking import (
    Query,
    defended,
    degenerate,
    extract,
    full_pages,
    generate,
)
from qpriv.attacks.extraction.candidate_ranking import decoys_of, rank_candidates
from qpriv.attacks.extraction.contexts import (
    ERASED,
    Brightness,
    CanarySet,
    Constant,
    ImageOnly,
    NoText,
    Rotation,
    Shift,
    Shuffled,
    standard_contexts,
)
from qpriv.datasets.documents.canaries import Curation
from qpriv.datasets.documents.fake_documents import DocumentMaker
from qpriv.datasets.documents.matching import canonical
from qpriv.datasets.documents.preparation import prepare_canaries
from qpriv.defences.extraction_blocking import ABSTAIN, ExtractionBlocking
from qpriv.defences.question_changes import (
    FileParaphrase,
    RandomDigits,
    RuleParaphrase,
    Seq2SeqParaphrase,
    by_question,
    of_samples,
)
from qpriv.errors import DataError
from qpriv.models.documents.base import Generated
from qpriv.models.documents.batch import by_page
from qpriv.models.documents.loading import load_document_model
from qpriv.models.documents.wiring import character_tokenizer
from qpriv.paradigms.documents import DocumentRecipe, fine_tune


@pytest.fixture(scope="module")
def canaries(tmp_path_factory):
    maker = DocumentMaker(seed=21)
    samples = [s for n in range(6) for s in maker.questions(maker.document(f"d{n}"), "train")]
    kept = prepare_canaries(samples, tmp_path_factory.mktemp("canaries"), Curation()).canaries
    return CanarySet(kept, samples)


@pytest.fixture(scope="module")
def reader():
    return load_document_model("tiny")


@pytest.fixture(scope="module")
def memoriser(canaries):
    """A reader trained on the very pages that are asked about: it knows the answers by heart."""
    model = load_document_model("tiny")
    twins = [
        replace(
            sample, image_id=f"{sample.image_id}/{number}", image=_Array(canaries.erased(number))
        )
        for number, sample in ((n, canaries.sample(n)) for n in range(len(canaries.canaries)))
    ]
    recipe = DocumentRecipe(epochs=25, batch_pages=8, noise=None, learning_rate=2e-3)
    fine_tune(model, by_page(twins), recipe, seed=0)
    return model


class _Array:
    def __init__(self, image):
        self.image = image

    def load(self):
        return self.image


def test_one_pass_equals_generation(memoriser, reader, canaries):
    for model in (memoriser, reader):
        queries = list(canaries.queries(ERASED))
        said = [best.text for (best,) in generate(model, queries)]
        expected = [text == query.answers[0] for text, query in zip(said, queries, strict=True)]
        assert extract(model, queries).exact.tolist() == expected
    assert extract(memoriser, queries).exact.mean() > 0.5


def test_batches_do_not_change_what_is_extracted(memoriser, canaries):
    queries = list(canaries.queries(ERASED))
    small, large = (extract(memoriser, queries, size) for size in (3, 64))
    assert (small.exact == large.exact).all()
    assert np.allclose(small.log_prob, large.log_prob, atol=1e-3)


def test_any_of_several_answers_counts(memoriser, canaries):
    query = next(q for q in canaries.queries(ERASED) if extract(memoriser, [q]).exact[0])
    both = replace(query, answers=("nothing of the kind", *query.answers))
    wrong = replace(query, answers=("nothing of the kind",))
    assert extract(memoriser, [both, wrong]).exact.tolist() == [True, False]


def test_equal_pages_are_encoded_once(reader, canaries, monkeypatch):
    encoded = []
    original = type(reader).encode

    def counting(self, pages, questions, page_of):
        encoded.append(len(pages))
        return original(self, pages, questions, page_of)

    monkeypatch.setattr(type(reader), "encode", counting)
    extract(reader, full_pages(canaries.samples))
    assert sum(encoded) == 6  # eighteen questions about six pages


def test_queries_are_made_when_they_are_needed(reader, canaries, monkeypatch):
    made, made_at_work = 0, []
    original = type(reader).logits

    def watched(self, pages, tokens):
        made_at_work.append(made)
        return original(self, pages, tokens)

    def counted():
        nonlocal made
        for query in canaries.queries(ERASED):
            made += 1
            yield query

    monkeypatch.setattr(type(reader), "logits", watched)
    extract(reader, counted(), batch_size=4)
    assert made_at_work[:2] == [4, 8] and made_at_work[-1] == len(canaries.canaries)


class TestContexts:
    def test_the_answer_is_gone_and_the_rest_is_there(self, canaries):
        for number, query in enumerate(canaries.queries(ERASED)):
            before = np.asarray(canaries.sample(number).image.load()).astype(int)
            after = np.asarray(query.image).astype(int)
            changed = (before != after).any(-1)
            for left, top, right, bottom in canaries.sample(number).relevant_boxes:
                assert (after[top:bottom, left:right] == 255).all()
            assert 0 < changed.mean() < 0.4

    def test_no_text_leaves_no_ink_of_words(self, canaries):
        query = NoText().query(canaries, 0, Random(0))
        page = canaries.sample(0).meta["text"].load()
        pixels = np.asarray(query.image)
        assert all(
            (pixels[t:b, max(0, left) : r] == 255).all()
            for left, t, r, b in (w.box for w in page.words)
        )

    def test_shuffled_pages_say_nothing_about_the_answer(self, canaries):
        numbers = range(len(canaries.canaries))
        shown = {canaries.erased(number).tobytes(): canaries.sample(number) for number in numbers}
        for number in numbers:
            query = Shuffled().query(canaries, number, Random(number))
            sample, other = canaries.sample(number), shown[query.image.tobytes()]
            assert query.question == sample.question and query.answers == (sample.answer,)
            assert other.image_id != sample.image_id
            asked = canaries.asked[other.image_id]
            assert sample.question not in {each.question for each in asked}
            assert canonical(sample.answer) not in canonical(other.meta["text"].load().text)
            assert sample.answer not in {each.answer for each in asked}

    def test_a_question_that_every_page_answers_has_no_unrelated_page(self, canaries):
        same = [replace(sample, question="what is it ?") for sample in canaries.samples]
        with pytest.raises(LookupError, match="no unrelated page"):
            Shuffled().query(replace(canaries, samples=same), 0, Random(0))

    def test_constant_pages_have_one_tone(self, canaries):
        for tone, value in (("black", 0), ("white", 255)):
            image = Constant(tone).query(canaries, 0, Random(0)).image
            assert np.unique(np.asarray(image)).tolist() == [value]
        mean = Constant("mean").query(canaries, 0, Random(0)).image
        assert 100 < np.asarray(mean).mean() < 255 and np.asarray(mean).std() < 3

    def test_image_only_asks_something_else_and_takes_any_answer(self, canaries):
        query = ImageOnly().query(canaries, 0, Random(0))
        own = canaries.asked[canaries.sample(0).image_id]
        assert query.question not in {s.question for s in own}
        assert set(query.answers) == {s.answer for s in own}
        pixels = np.asarray(query.image)
        for left, top, right, bottom in (box for s in own for box in s.relevant_boxes):
            assert (pixels[top:bottom, left:right] == 255).all()  # none can be read

    def test_perturbations(self, canaries):
        page = canaries.erased(0)
        assert np.asarray(Brightness(0.5)(page)).mean() < 0.6 * np.asarray(page).mean()
        assert np.asarray(Brightness(2.0)(page)).mean() >= np.asarray(page).mean()
        moved = np.asarray(Shift(5)(page))
        assert moved[:5].min() == 255 and moved[:, :5].min() == 255  # paper behind it
        assert (moved[5:, 5:] == np.asarray(page)[:-5, :-5]).all()
        turned = np.asarray(Rotation(10)(page))
        assert turned.shape == np.asarray(page).shape and turned[0, 0].min() == 255
        assert not (turned == np.asarray(page)).all()

    def test_contexts_are_the_sources_and_repeat_with_their_seed(self, canaries):
        contexts = standard_contexts(of_samples(RuleParaphrase()), shifts=(1, 5))
        assert len({context.name for context in contexts}) == len(contexts) == 16
        for context in contexts:
            first, second = (list(canaries.queries(context, seed=1)) for _ in range(2))
            assert [q.question for q in first] == [q.question for q in second]
            assert all(a.image == b.image for a, b in zip(first, second, strict=True))


def test_ranking_finds_what_is_known_by_heart(memoriser, canaries):
    ranks = rank_candidates(memoriser, canaries)
    assert np.mean([ranking.rank == 1 for ranking in ranks]) > 0.6
    assert all(r.candidates == len(decoys_of(canaries, n)) for n, r in enumerate(ranks))


def test_decoys_are_answers_of_the_same_kind(canaries):
    kinds = {canary.answer: canary.pii for canary in canaries.canaries}
    decoys = decoys_of(canaries, 0)
    assert decoys[0] == canaries.canaries[0].answer
    assert {kinds[decoy] for decoy in decoys} == {canaries.canaries[0].pii}


class TestDefences:
    def test_every_sample_gets_a_twin_without_its_answer(self, canaries):
        both = ExtractionBlocking().blocked(canaries.samples)
        twins = [sample for sample in both if sample.answer == ABSTAIN]
        assert len(both) == 2 * len(twins) == 2 * len(canaries.samples)
        assert len({sample.key for sample in both}) == len(both)
        for sample, twin in zip(both[::2], both[1::2], strict=True):
            left, top, right, bottom = sample.relevant_boxes[0]
            area = np.asarray(twin.image.load())[top:bottom, left:right]
            assert area.reshape(-1, 3).std(axis=0).max() < 1  # one tone, white or paper
            assert twin.question == sample.question

    def test_fills_and_margins_vary(self, canaries):
        twins = [s.image for s in ExtractionBlocking().blocked(canaries.samples)[1::2]]
        assert len({(image.fill, image.margin) for image in twins}) == 4

    def test_an_answer_that_is_not_found_gets_no_twin(self, canaries):
        stranger = replace(canaries.samples[0], answer="Nemo", answers=("Nemo",))
        assert ExtractionBlocking().blocked([stranger]) == [stranger]

    def test_a_blocked_reader_abstains_until_it_may_not(self, canaries):
        model = load_document_model("tiny")
        twins = [s for s in ExtractionBlocking().blocked(canaries.samples) if s.answer == ABSTAIN]
        recipe = DocumentRecipe(epochs=10, batch_pages=8, noise=None, learning_rate=2e-3)
        fine_tune(model, by_page(twins), recipe, seed=0)
        queries = list(canaries.queries(ERASED))[:8]
        said = [best.text for (best,) in generate(model, queries)]
        assert said.count(ABSTAIN) >= 6
        banned = [best.text for (best,) in generate(model, queries, banned=[ABSTAIN])]
        assert not any(text.startswith("ANSWER") for text in banned) and any(banned)

    @pytest.mark.parametrize("place", ["before", "after"])
    def test_random_digits(self, place):
        change = RandomDigits(place)
        first, second = change("who ?"), change("who ?")
        assert first != second and len(first) == len("who ? 123456")
        assert first.endswith("who ?") == (place == "before")

    @pytest.mark.parametrize(
        "question",
        ["What is the date of AB12 ?", "who is the chair?", "which shop is given ?", "name it"],
    )
    def test_paraphrases_differ_and_keep_the_names(self, question):
        reworded = RuleParaphrase()(question)
        assert reworded != question
        assert all(word in reworded for word in question.split() if any(c.isdigit() for c in word))

    def test_paraphrases_from_a_file(self, tmp_path):
        path = tmp_path / "table.json"
        path.write_text('{"who ?": ["tell me who .", "x"]}')
        assert FileParaphrase(path)("who ?") == "tell me who ."
        with pytest.raises(DataError, match="no paraphrase of"):
            FileParaphrase(path)("when ?")

    def test_paraphrases_from_a_model_of_the_library(self, tmp_path):
        tokenizer = character_tokenizer()
        tokenizer.save_pretrained(tmp_path)
        torch.manual_seed(0)
        T5ForConditionalGeneration(
            T5Config(
                vocab_size=len(tokenizer),
                d_model=16,
                d_kv=8,
                d_ff=16,
                num_layers=1,
                num_heads=2,
                decoder_start_token_id=tokenizer.pad_token_id,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
            )
        ).save_pretrained(tmp_path)
        reword = Seq2SeqParaphrase(str(tmp_path), prompt="reword: {question}")
        first = reword("who is it ?")
        assert first == reword("who is it ?") and "<pad>" not in first
        prompts = []
        reword.tokenizer = lambda text, **how: prompts.append(text) or tokenizer(text, **how)
        reword.tokenizer.decode = tokenizer.decode
        reword("when ?")
        assert prompts == ["reword: when ?"]

    def test_what_is_asked_can_be_the_question_alone(self, canaries):
        own, alone = of_samples(str.upper), by_question(str.upper)
        sample = canaries.samples[0]
        assert own(sample) == sample.meta["paraphrase"]
        assert alone(sample) == sample.question.upper()

    def test_a_defence_changes_what_the_model_is_asked(self, canaries):
        queries = list(canaries.queries(ERASED))
        changed = list(defended(queries, str.upper))
        assert [q.question for q in changed] == [q.question.upper() for q in queries]
        assert changed[0].answers == queries[0].answers


@pytest.mark.parametrize(
    ("said", "symptom"),
    [
        ([Generated("", True)] * 5, "says nothing"),
        ([Generated(f"x{n}", False) for n in range(5)], "does not end"),
        ([Generated("s" * (9 + n), True) for n in range(5)], "repeats"),
        ([Generated("Acme", True)] * 5, "same to everything"),
        ([Generated(f"Ann {n}", True) for n in range(5)], None),
        ([], None),
    ],
)
def test_broken_models_are_told_from_private_ones(said, symptom):
    found = degenerate(said)
    assert symptom in found if symptom else found is None


def test_queries_without_pages_are_no_special_case(reader, canaries):
    assert extract(reader, []).exact.tolist() == []
    assert isinstance(next(full_pages(canaries.samples)), Query)
