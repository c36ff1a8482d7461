"""What a reconstruction is worth: against the truth, against guesses without it, and by face."""

from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn.functional import interpolate

from qpriv.datasets.sample import Box
from qpriv.declaration import aside
from qpriv.metrics.means import IMAGE_GROUP, PERSON, mean_result
from qpriv.metrics.perceptual import gmsd
from qpriv.metrics.reconstruction import Regions, psnr, ssim
from qpriv.metrics.reidentification import face_crops
from qpriv.models.precision import full_precision
from qpriv.quantity import Quantity
from qpriv.result import Result

from ..observation import Scenes
from . import recognition_quantities as recognition

FACE = Quantity(
    name="psnr_sensitive",
    title="PSNR in the face box, dB",
    label="Face PSNR",
    meaning="How well the face is repainted; higher: more is seen.",
    unit="dB",
    direction="leak",
    baseline="floor_mean_face",
    headline=True,
    question="face reconstruction",
)
FACE_FLOOR = Quantity(
    name="floor_mean_face",
    title="Floor: mean face, dB",
    label="mean face",
    meaning="What an average face at the right place gives: its box is told.",
    unit="dB",
)
FACE_GAIN = Quantity(
    name="gain_over_mean_face",
    title="Gain over the mean face, dB",
    meaning="The difference of the two, paired by image.",
    unit="dB",
    direction="leak",
)
IMAGE = Quantity(
    name="psnr",
    title="PSNR, whole image, dB",
    label="Image PSNR",
    meaning="How well the whole scene is repainted.",
    unit="dB",
    direction="leak",
    baseline="floor_mean_image",
    headline=True,
    question="image reconstruction",
)
IMAGE_FLOOR = Quantity(
    name="floor_mean_image",
    title="Floor: mean image, dB",
    label="mean image",
    meaning="What an average scene gives.",
    unit="dB",
)
RECOVERED = (
    Quantity(
        name="recovered_share_sensitive",
        title="Recovered share",
        meaning="Of the way from the mean face to what training through the true client gives.",
        direction="leak",
    ),
    Quantity(
        name="recovered_share",
        title="Recovered share, whole image",
        meaning="The same over the whole scene, from the mean image.",
        direction="leak",
    ),
)
"""What a report makes of these figures for an attacker who is not granted the true client."""

_EMPTY = {
    "_sensitive": "the scenes have no sensitive box",
    "_kept": "no patch was kept",
    "_dropped": "no patch was dropped",
}
"""Why a figure of a region has no value, by the end of its name."""
_REGIONS = {"_sensitive": "face box", "_kept": "kept patches", "_dropped": "dropped patches"}
QUANTITIES = (
    FACE,
    FACE_FLOOR,
    recognition.LOCATED_FLOOR,
    FACE_GAIN,
    IMAGE,
    IMAGE_FLOOR,
    *recognition.QUANTITIES,
    *aside(
        [
            Quantity(
                name=f"psnr{suffix}",
                title=f"PSNR, {region}, dB",
                meaning=f"How well the {region} are repainted.",
                unit="dB",
                direction="leak",
                baseline=f"floor_mean_image{suffix}",
            )
            for suffix, region in _REGIONS.items()
            if suffix != "_sensitive"
        ]
    ),
    *aside(
        [
            Quantity(
                name=f"ssim{suffix}",
                title=f"SSIM, {region}",
                meaning=f"Structural similarity, {region}; 1 is an exact copy.",
                direction="leak",
            )
            for suffix, region in {"": "whole image", **_REGIONS}.items()
        ]
    ),
    *aside(
        [
            Quantity(
                name=f"floor_mean_image{suffix}",
                title=f"Floor: mean image, {region}, dB",
                meaning=f"What an average scene gives, {region}.",
                unit="dB",
            )
            for suffix, region in _REGIONS.items()
        ]
    ),
    *aside(
        [
            Quantity(
                name="gmsd",
                title="GMSD, whole image",
                meaning="Gradient magnitude similarity deviation; 0 is an exact copy.",
                baseline="floor_mean_image_gmsd",
            ),
            Quantity(
                name="floor_mean_image_gmsd",
                title="Floor: mean image, GMSD",
                meaning="What an average scene gives.",
            ),
        ]
    ),
)
"""Figures of `reconstruction_report` and of `recognition.report`."""

WEAKER = (
    FACE.name,
    FACE_FLOOR.name,
    recognition.LOCATED_FLOOR.name,
    IMAGE.name,
    recognition.FOUND.name,
    *(own.name for own in RECOVERED),
)
"""What the main table shows of an attacker who is not granted the true client."""


@dataclass(frozen=True)
class Baselines:
    """What an attacker paints who has auxiliary pictures and sees nothing of the victim's.

    Args:
        mean_image: Mean auxiliary picture, ``[3, H, W]``.
        mean_face: Mean auxiliary face, ``[3, s, s]``, or None where there is none.
    """

    mean_image: Tensor
    mean_face: Tensor | None

    @classmethod
    def of(cls, auxiliary: Scenes) -> "Baselines":
        """Return the floors for some auxiliary scenes."""
        faces = [row for row, box in enumerate(auxiliary.faces) if box is not None]
        boxes = [box for box in auxiliary.faces if box is not None]
        mean_face = face_crops(auxiliary.pictures[faces], boxes).mean(0) if faces else None
        return cls(auxiliary.pictures.mean(dim=0), mean_face)

    def images(self, scenes: Scenes) -> Tensor:
        """Return the mean image for every scene."""
        return self.mean_image.expand_as(scenes.pictures)

    def faces(self, scenes: Scenes) -> Tensor:
        """Return the mean image with the mean face at each face's true place.

        This floor knows where the face is: what an inverter gains over it is what it knows of
        the face itself.
        """
        painted = self.images(scenes).clone()
        for row, box in enumerate(scenes.faces):
            if box is not None and self.mean_face is not None:
                left, top, right, bottom = box
                painted[row, :, top:bottom, left:right] = _resized(self.mean_face, box)
        return painted


@full_precision()
def reconstruction_report(
    restored: Tensor, truth: Scenes, regions: Regions, floors: Baselines
) -> list[Result]:
    """Return PSNR and SSIM in every region with intervals over images, and their floors.

    ``psnr``, ``psnr_sensitive``, ``psnr_kept``, ``psnr_dropped`` and the same of ``ssim``;
    ``floor_mean_image`` with the same suffixes (PSNR), ``floor_mean_face`` (PSNR in the
    sensitive boxes) and ``gain_over_mean_face``, the paired difference to it. ``gmsd`` is
    perceptual and of the whole picture, 0 for an exact copy, beside ``floor_mean_image_gmsd``.
    """
    guess, face = floors.images(truth), floors.faces(truth)
    report = [
        figure("gmsd", gmsd(restored, truth.pictures), truth),
        figure("floor_mean_image_gmsd", gmsd(guess, truth.pictures), truth),
    ]
    for suffix, region in regions.named.items():
        report += [
            figure(f"psnr{suffix}", psnr(restored, truth.pictures, region), truth, "dB"),
            figure(f"ssim{suffix}", ssim(restored, truth.pictures, region), truth),
            figure(f"floor_mean_image{suffix}", psnr(guess, truth.pictures, region), truth, "dB"),
        ]
    if floors.mean_face is not None:
        inside = regions.sensitive
        floor = psnr(face, truth.pictures, inside)
        gain = psnr(restored, truth.pictures, inside) - floor
        report += [
            figure("floor_mean_face", floor, truth, "dB"),
            figure("gain_over_mean_face", gain, truth, "dB"),
        ]
    return report


def figure(name: str, values: Tensor, truth: Scenes, unit: str = "") -> Result:
    """Return the mean of per-image values with its interval; NaN does not count.

    Where every value is of somebody's picture, and there are several people, the interval draws
    people, then images of each: pictures of one face are not independent.
    """
    known = (~values.isnan()).tolist()
    people = {who for who, keep in zip(truth.identities, known, strict=True) if keep}
    several = len(people) > 1 and None not in people
    persons = {PERSON: truth.identities} if several else {}
    found = mean_result(
        name, values.double().numpy(), {**persons, IMAGE_GROUP: truth.groups}, unit=unit
    )
    if found.value is None:
        why = next((text for end, text in _EMPTY.items() if name.endswith(end)), "")
        return replace(found, note=why)
    return found


def _resized(face: Tensor, box: Box) -> Tensor:
    size = (box[3] - box[1], box[2] - box[0])
    return interpolate(face[None], size, mode="bilinear", antialias=True, align_corners=False)[0]
