"""Questions about a scene, each with its true answer and the boxes it is about."""

from dataclasses import dataclass

from numpy.random import Generator

from .sample import Box
from .scenes import COLORS, KINDS, Scene, Shape

NUMBERS = ("zero", "one", "two")

COLOR_TEMPLATES = ("what color is the {kind} ?", "what is the color of the {kind} ?")
SHAPE_TEMPLATES = ("what shape is {color} ?", "what is the {color} shape ?")
COUNT_TEMPLATES = ("how many shapes are there ?", "how many shapes are in the image ?")
EXIST_TEMPLATES = (
    "is there a {thing} ?",
    "is there a {thing} in the image ?",
    "does the image contain a {thing} ?",
)
MEMORISATION_QUESTION = "what color is the person ?"
"""Its answer cannot be seen: a random colour word a sample, which can only be memorised."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its answer and what it is about.

    Args:
        kind: ``color``, ``shape``, ``count``, ``exist`` or ``memorisation``.
        text: The question.
        answer: One word.
        boxes: Boxes of what has to be looked at.
    """

    kind: str
    text: str
    answer: str
    boxes: tuple[Box, ...]


def ask(rng: Generator, scene: Scene) -> tuple[Question, ...]:
    """Return all questions about a scene: five for one shape, seven for two."""
    questions = [asked for shape in scene.shapes for asked in _about(rng, shape)]
    everything = tuple(shape.box for shape in scene.shapes)
    number = NUMBERS[len(scene.shapes)]
    questions.append(Question("count", _pick(rng, COUNT_TEMPLATES), number, everything))
    shape = scene.shapes[rng.integers(len(scene.shapes))]
    present, absent = _present(rng, shape), _absent(rng, scene, shape)
    template = _pick(rng, EXIST_TEMPLATES)
    questions.append(Question("exist", template.format(thing=present), "yes", (shape.box,)))
    template = _pick(rng, EXIST_TEMPLATES)
    questions.append(Question("exist", template.format(thing=absent), "no", everything))
    return tuple(questions)


def memorise(rng: Generator, scene: Scene) -> Question:
    """Return a question about the person whose answer is a random known word."""
    answer = str(rng.choice(list(COLORS)))
    boxes = (scene.face,) if scene.face else ()
    return Question("memorisation", MEMORISATION_QUESTION, answer, boxes)


def _about(rng: Generator, shape: Shape) -> list[Question]:
    color = _pick(rng, COLOR_TEMPLATES).format(kind=shape.kind)
    kind = _pick(rng, SHAPE_TEMPLATES).format(color=shape.color)
    return [
        Question("color", color, shape.color, (shape.box,)),
        Question("shape", kind, shape.kind, (shape.box,)),
    ]


def _present(rng: Generator, shape: Shape) -> str:
    """Describe a shape by its kind, its colour, or both."""
    things = (shape.kind, f"{shape.color} shape", f"{shape.color} {shape.kind}")
    return things[rng.integers(3)]


def _absent(rng: Generator, scene: Scene, shape: Shape) -> str:
    """Describe something that is not there, as far off as `_present` describes what is.

    Half of those that name both colour and kind share one of them with a shape of the scene.
    """
    kinds = [kind for kind in KINDS if all(kind != other.kind for other in scene.shapes)]
    colors = [color for color in COLORS if all(color != other.color for other in scene.shapes)]
    kind, color = _pick(rng, kinds), _pick(rng, colors)
    near = (f"{shape.color} {kind}", f"{color} {shape.kind}", f"{color} {kind}")
    return (kind, f"{color} shape", _pick(rng, near))[rng.integers(3)]


def _pick(rng: Generator, options: tuple[str, ...] | list[str]) -> str:
    return options[rng.integers(len(options))]
