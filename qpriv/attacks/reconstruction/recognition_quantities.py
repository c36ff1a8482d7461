"""What each figure of recognition means."""

from qpriv.declaration import aside
from qpriv.quantity import Quantity

FOUND = Quantity(
    name="reid_top1",
    title="Re-identified, top 1",
    label="Faces found first",
    meaning="Share of faces whose person stands first in the gallery, by the matcher that finds "
    "most auxiliary people.",
    direction="leak",
    headline=True,
    question="recognition",
)
FOUND_AMONG_FIVE = Quantity(
    name="reid_top5",
    title="Re-identified, top 5",
    meaning="Share of faces whose person is among the first five.",
    direction="leak",
)
FOUND_GONE = Quantity(
    name="reid_top1_gone",
    title="Top 1, face gone",
    meaning="The same as top 1 where no patch on the face crossed.",
    direction="leak",
)
FOUND_WARPED = Quantity(
    name="reid_top1_warped",
    title="Top 1, another photograph",
    meaning="Top 1 in a gallery of warped pictures: turned, moved, scaled, lit from another side.",
    direction="leak",
)
LOCATED_FLOOR = Quantity(
    name="floor_located_mean_face",
    title="Floor: mean face where the mask says, dB",
    label="mean face where the mask says",
    meaning="What an average face gives where the dropped patches say a face is: all that a server "
    "knows who sees the mask.",
    unit="dB",
)
MATCHERS = {
    "whole_crop": "by correlation of the whole repainted face",
    "crossed_pixels": "by the pixels of the face that crossed alone",
    "crossed_tokens": "by the tokens on the face that crossed",
}
"""How each matcher compares."""

ASIDE = aside(
    [
        *(
            Quantity(
                name=f"reid_top1_{matcher}",
                title=f"Top 1, {matcher.replace('_', ' ')}",
                meaning=f"Top 1 {how}.",
                direction="leak",
            )
            for matcher, how in MATCHERS.items()
        ),
        Quantity(
            name="reid_top1_box_unknown",
            title="Top 1, box not told",
            meaning="Top 1 where the attacker must find the face by what was dropped.",
            direction="leak",
        ),
        Quantity(
            name="reid_top1_glimpsed",
            title="Top 1, under 10 % of the face visible",
            meaning="Top 1 where some, but under a tenth, of the face's pixels crossed.",
            direction="leak",
        ),
        Quantity(
            name="reid_top1_visible",
            title="Top 1, more visible",
            meaning="Top 1 where a tenth or more of the face's pixels crossed.",
            direction="leak",
        ),
        Quantity(
            name="reid_top5_gone",
            title="Top 5, face gone",
            meaning="Among the first five where no patch on the face crossed.",
            direction="leak",
        ),
        Quantity(
            name="reid_top1_by_person",
            title="Top 1, by person",
            meaning="The same figure as top 1; its interval is over people instead of faces.",
            direction="leak",
        ),
        Quantity(
            name="reid_top1_control",
            title="Top 1, control",
            meaning="Top 1 off another person's scene: nothing but chance.",
        ),
        Quantity(
            name="floor_eigenfaces",
            title="Floor: eigenfaces, dB",
            meaning="What completing the pixels that crossed by auxiliary faces gives; its box is "
            "told.",
            unit="dB",
        ),
        Quantity(
            name="floor_gallery",
            title="Floor: gallery, dB",
            meaning="What the gallery's portraits give, each as likely as the pixels that crossed "
            "make it; its box is told.",
            unit="dB",
        ),
    ]
)
QUANTITIES = (FOUND, FOUND_AMONG_FIVE, FOUND_GONE, FOUND_WARPED, *ASIDE)
"""Figures of `recognition_report` and, with `LOCATED_FLOOR`, of `floors_by_knowledge`."""
