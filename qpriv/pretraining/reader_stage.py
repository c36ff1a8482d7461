"""How the embedded reader was trained: ``qpriv prepare reader``.

Reading from pixels alone stalls at guessing what is frequent. Two helpers, thrown away afterwards,
get it off the ground: the encoder also spells what stands under each token (pseudo-OCR), and two
heads of the decoder are told where to look (guided attention). Scan noise is there from the first
step: a reader that met only clean pages forgets how to read when it is fine-tuned under noise.
"""

import math
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qpriv.datasets.documents.fake_documents import DocumentMaker, FakeDocument
from qpriv.datasets.documents.fake_rendering import Glyph
from qpriv.datasets.documents.scan import ScanNoise
from qpriv.datasets.sample import VQASample
from qpriv.errors import CheckpointError
from qpriv.io import atomic_open
from qpriv.models.documents.base import EncodedPages
from qpriv.models.documents.donut import Donut
from qpriv.models.documents.tiny_reader import MAX_TOKENS, build_processor, build_reader

CHARACTERS = string.ascii_letters + string.digits + string.punctuation
COLUMNS = 4
"""Sub-columns of a token that the pseudo-OCR spells."""
PRETRAINING_NOISE = ScanNoise(0, (0.5, 1.2), (0.6, 1.6), grain=0.15, fixed_grain=False)


@dataclass(frozen=True)
class ReaderRecipe:
    """Settings of the training.

    Args:
        steps: Optimiser steps.
        documents: Documents drawn in advance; they are gone through again with fresh noise.
        batch_size: Documents a step, each with all its questions.
        learning_rate: Peak of the schedule.
        warmup: Steps until the peak.
        flat: Share of the steps at the peak, before the cosine to zero.
        guidance: Weight of the guided attention.
        noise: Scan noise; its grain is drawn anew for every page.
        shift: Largest shift of a page in pixels; apart from ``noise``, since the places of the
            characters shift with the page.
        seed: Fixes weights, documents and noise.
    """

    steps: int = 4500
    documents: int = 16_000
    batch_size: int = 16
    learning_rate: float = 1e-3
    warmup: int = 100
    flat: float = 0.4
    guidance: float = 0.3
    noise: ScanNoise = PRETRAINING_NOISE
    shift: int = 3
    seed: int = 0


@dataclass(frozen=True)
class ReaderBatch:
    """One step's pages with the places of their characters."""

    pages: list[Tensor]
    samples: list[VQASample]
    page_of: list[int]
    spelled: Tensor
    shifts: list[tuple[int, int]]


def new_reader(seed: int = 0) -> Donut:
    """Return the embedded reader with random weights."""
    torch.manual_seed(seed)
    processor = build_processor((64, 128))
    return Donut(build_reader(processor), processor, max_tokens=MAX_TOKENS)


def train_reader(recipe: ReaderRecipe, folder: Path, log_every: int = 100) -> Donut:
    """Train the embedded reader; goes on from ``folder/reader.pt`` where it was interrupted.

    Args:
        recipe: The settings.
        folder: Where the state is kept while training.
        log_every: Steps between two lines of progress and two saved states.
    """
    model = new_reader(recipe.seed)
    model.base.decoder.set_attn_implementation("eager")  # the only one that returns attention
    speller = nn.Linear(model.base.encoder.config.hidden_size, COLUMNS * (len(CHARACTERS) + 1))
    trained = nn.ModuleDict({"reader": model.network, "speller": speller})
    optimizer = torch.optim.AdamW(trained.parameters(), recipe.learning_rate, weight_decay=0.01)
    start = _resume(folder / "reader.pt", trained, optimizer, recipe)
    means: dict[str, float] = {}
    for step, batch in enumerate(batches(model, recipe, start), start=start):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * schedule(step, recipe)
        losses = step_losses(model, speller, batch)
        total = losses["answer"] + losses["spelling"] + recipe.guidance * losses["guidance"]
        optimizer.zero_grad()
        torch.autograd.backward(total)
        nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimizer.step()
        for name, loss in losses.items():
            means[name] = 0.98 * means.get(name, loss.item()) + 0.02 * loss.item()
        if (step + 1) % log_every == 0:
            print(f"step {step + 1}/{recipe.steps}", {n: round(v, 3) for n, v in means.items()})
            _save(folder / "reader.pt", trained, optimizer, recipe, step + 1)
    model.base.decoder.set_attn_implementation("sdpa")
    return model.eval()


def schedule(step: int, recipe: ReaderRecipe) -> float:
    """Return the factor on the learning rate: warm-up, flat, cosine to zero."""
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    flat = recipe.flat * recipe.steps
    if step < flat:
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - flat) / (recipe.steps - flat)))


def batches(model: Donut, recipe: ReaderRecipe, start: int) -> Iterator[ReaderBatch]:
    """Yield the batches of the steps from ``start`` on; each depends on its number alone."""
    maker = DocumentMaker(seed=recipe.seed, random_share=0.3)
    documents = []
    for number in range(recipe.documents):
        documents.append(maker.document(str(number)))
        if number % 1000 == 999:
            maker.used.clear()  # values may come again here, only canaries must be unique
    for step in range(start, recipe.steps):
        generator = torch.Generator().manual_seed(recipe.seed * 10**6 + step)
        chosen = torch.randint(len(documents), (recipe.batch_size,), generator=generator)
        maker.rng.seed(recipe.seed * 10**6 + step)
        picked = [documents[number] for number in chosen.tolist()]
        yield _batch(model, maker, picked, recipe, generator)


def _batch(
    model: Donut,
    maker: DocumentMaker,
    documents: list[FakeDocument],
    recipe: ReaderRecipe,
    generator: torch.Generator,
) -> ReaderBatch:
    samples: list[VQASample] = []
    page_of: list[int] = []
    pages: list[Tensor] = []
    spelled: list[Tensor] = []
    shifts: list[tuple[int, int]] = []
    for number, document in enumerate(documents):
        asked = maker.questions(document, "train")
        samples += asked
        page_of += [number] * len(asked)
        down, right = torch.randint(-recipe.shift, recipe.shift + 1, (2,), generator=generator)
        shift = int(down), int(right)
        pixels = torch.from_numpy(document.drawn.pixels).expand(3, -1, -1)
        page = recipe.noise.jitter(pixels.roll(shift, (1, 2)), generator)
        pages.append(recipe.noise.add_grain(page, generator))
        spelled.append(spelling(document.drawn.glyphs, shift, model.base.encoder.config.grid))
        shifts.append(shift)
    return ReaderBatch(pages, samples, page_of, torch.stack(spelled), shifts)


def cell_of(glyph: Glyph, shift: tuple[int, int], grid: tuple[int, int]) -> tuple[int, float]:
    """Return row and fractional column of a character in the token grid, wrapped at the edges."""
    row = int((glyph.top + glyph.bottom) / 2 + shift[0]) // 16 % grid[0]
    column = ((glyph.left + glyph.right) / 2 + shift[1]) / 8 % grid[1]
    return row, column


def spelling(
    lines: tuple[tuple[Glyph, ...], ...], shift: tuple[int, int], grid: tuple[int, int]
) -> Tensor:
    """Return which character stands under each sub-column ``[N, 4]``; 0 where none does."""
    rows, columns = grid
    target = torch.zeros(rows, columns * COLUMNS, dtype=torch.long)
    for glyph in (glyph for line in lines for glyph in line if glyph.text != " "):
        row, _ = cell_of(glyph, shift, grid)
        first = round((glyph.left + shift[1]) / 8 * COLUMNS)
        last = max(first + 1, round((glyph.right + shift[1]) / 8 * COLUMNS))
        covered = [column % (columns * COLUMNS) for column in range(first, last)]
        target[row, covered] = CHARACTERS.index(glyph.text) + 1
    return target.view(rows * columns, COLUMNS)


def step_losses(model: Donut, speller: nn.Linear, batch: ReaderBatch) -> dict[str, Tensor]:
    """Return the three losses of a step."""
    states = model.base.encoder(pixel_values=model.normalised(batch.pages)).last_hidden_state
    spelled = speller(states).unflatten(-1, (COLUMNS, -1))
    spelling_loss = F.cross_entropy(spelled.flatten(0, 2), batch.spelled.flatten())
    pages = EncodedPages(states, None, torch.tensor(batch.page_of))  # type: ignore[arg-type]
    questions = [sample.question for sample in batch.samples]
    tokens = model.tokenise(questions, [sample.answer for sample in batch.samples])
    output = model.base.decoder(
        input_ids=tokens.ids,
        encoder_hidden_states=pages.expanded()[0],
        output_attentions=True,
        use_cache=False,
    )
    previous, current = looked_at(model, batch, tokens.labels.shape[1])
    guidance = sum(
        (
            _attention_loss(attention[:, :2].mean(1), cells)
            for attention, cells in zip(output.cross_attentions, (previous, current), strict=True)
        ),
        torch.zeros(()),
    )
    return {
        "answer": model.loss(output.logits, tokens),
        "spelling": spelling_loss,
        "guidance": guidance,
    }


def _attention_loss(attention: Tensor, cells: Tensor) -> Tensor:
    """Return the mean negative log attention on the wanted cells.

    Args:
        attention: Share of the attention on each token ``[B, S, N]``.
        cells: Number of the wanted token ``[B, S]``, -1 where none is wanted.
    """
    wanted = cells >= 0
    mass = attention.gather(-1, cells.clamp(min=0)[..., None])[..., 0]
    return -(mass[wanted] + 1e-6).log().mean()


def looked_at(model: Donut, batch: ReaderBatch, length: int) -> tuple[Tensor, Tensor]:
    """Return the cells of the last and of the next character at each position ``[B, S]``."""
    previous = torch.full((len(batch.samples), length), -1)
    current = previous.clone()
    grid = model.base.encoder.config.grid
    for row, sample in enumerate(batch.samples):
        shift = batch.shifts[batch.page_of[row]]
        places = [cell_of(glyph, shift, grid) for glyph in sample.meta["value_glyphs"]]
        numbers = [line * grid[1] + int(column) for line, column in places]
        encoded = model.tokenizer(
            sample.answer, add_special_tokens=False, return_offsets_mapping=True
        )
        cells = [numbers[start] for start, _ in encoded.offset_mapping]
        begin = len(model.prompt_ids(sample.question)) - 1
        current[row, begin : begin + len(cells)] = torch.tensor(cells)
        before = [cells[0], *cells]  # the end marker, too, follows a last character
        previous[row, begin : begin + len(before)] = torch.tensor(before)
    return previous, current


def export_reader(model: Donut, folder: Path) -> None:
    """Write a reader as a folder of the library, weights in half precision."""
    model.network.half().save_pretrained(folder)
    model.processor.save_pretrained(folder)
    model.network.float()


def _save(
    path: Path,
    trained: nn.Module,
    optimizer: torch.optim.Optimizer,
    recipe: ReaderRecipe,
    step: int,
) -> None:
    state = {"weights": trained.state_dict(), "optimizer": optimizer.state_dict()}
    with atomic_open(path) as file:
        torch.save({**state, "step": step, "recipe": repr(recipe)}, file)


def _resume(
    path: Path, trained: nn.Module, optimizer: torch.optim.Optimizer, recipe: ReaderRecipe
) -> int:
    """Load a saved state where there is one and return the step to go on from.

    Raises:
        CheckpointError: If it was saved under other settings.
    """
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    if state["recipe"] != repr(recipe):
        raise CheckpointError(
            "the saved reader was trained with other settings",
            where=str(path),
            remedy="remove the file, or choose another folder",
        )
    trained.load_state_dict(state["weights"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
