"""Encoded pictures to RGB: few formats, no more pixels than a limit, as their maker meant them."""

import io
import os
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from qpriv.errors import DataError, reason

from .files import refuse_broken_download
from .unpacking import limit_from

FORMATS: Final = ("JPEG", "PNG", "TIFF", "BMP", "GIF", "WEBP")
"""What is decoded, by Pillow's names. The sets come in JPEG and PNG, document scans in TIFF, copies
of web pictures in the others. Pillow knows forty more, of which one starts a program (EPS)."""

SUFFIXES: Final = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".gif", ".webp"})
"""Endings of picture files, in lower case."""

SETTING: Final = "QPRIV_MAX_IMAGE_PIXELS"
"""Environment variable with another limit, for pictures that are known."""

_MOST_PIXELS = 89_478_485  # where Pillow starts to warn: a quarter of a gigabyte in RGB
_MOST_SIDES = 200  # a longer strip would grow to gigabytes where its short side is scaled to a crop
_UNDECODABLE = {
    b"%!PS": "PostScript",
    b"\xc5\xd0\xd3\xc6": "PostScript",
    b"%PDF": "PDF",
    b"8BPS": "Photoshop",
    b"DDS ": "DirectDraw",
    b"\0\0\0\x0cjP  ": "JPEG 2000",
    b"<svg": "SVG",
}
_CONTAINERS = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIF"}
_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b"\x00;"}
"""Last bytes of a whole file, by format."""
_ORIENTATION = 0x0112  # the EXIF tag that says how the camera was held
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_PHOTOMETRIC, _BITS, _SAMPLE_FORMAT = 262, 258, 339  # TIFF tags
_WHITE_IS_ZERO, _UNSIGNED = 0, 1


def decode_image(source: bytes | IO[bytes], where: str) -> Image.Image:
    """Return an encoded picture in mode RGB, turned upright; of several the first.

    Args:
        source: A whole image file, or the file opened.
        where: Its name, for messages.

    Raises:
        DataError: If it is no picture of the `FORMATS`, is damaged, or has more pixels than the
            limit; says so where it is a web page or a pointer.
    """
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    limit = limit_from(SETTING, _MOST_PIXELS)
    if limit > (Image.MAX_IMAGE_PIXELS or limit):
        Image.MAX_IMAGE_PIXELS = limit  # Pillow's own limit must not stand below the one asked for
    try:
        with Image.open(stream, formats=FORMATS) as image:
            _check_size(*image.size, limit, where)
            image.load()
            return _upright(to_rgb(image), _turn(image))
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_many_pixels(reason(error), where) from error
    except Exception as error:  # decoders meet damaged bytes in any way
        head = _head(stream)
        refuse_broken_download(head, where)
        raise DataError(
            f"not a readable image: {_what_it_is(head) or _why(error)}",
            where=where,
            remedy=f"download it again, or convert it to one of {', '.join(FORMATS)}",
        ) from error


def has_sound_header(stream: IO[bytes]) -> bool:
    """Return whether a file begins as a picture that is decoded, of no more pixels than the limit."""
    return _format(stream) != ""


def looks_whole(stream: IO[bytes]) -> bool:
    """Return whether a file begins as a picture and ends as its format does, in microseconds.

    False does not mean that it cannot be decoded: some formats have no mark at their end, and
    harmless bytes may follow it.
    """
    end = _ENDS.get(_format(stream))
    if end is None:
        return False
    stream.seek(-len(end), os.SEEK_END)
    return stream.read() == end


def _format(stream: IO[bytes]) -> str:
    """Return Pillow's name of a picture's format, nothing where its header is wrong."""
    try:
        with Image.open(stream, formats=FORMATS) as image:
            _check_size(*image.size, limit_from(SETTING, _MOST_PIXELS), "")
            return image.format or ""
    except Exception:  # whatever is wrong, `decode_image` tells it
        return ""


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an 8-bit RGB copy of an image in any Pillow mode.

    Transparency is laid on white. Grey of more than eight bits keeps the upper eight of those in
    use, where plain `convert` would clip everything above 255 to white. Colour profiles are not
    applied.
    """
    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_eight_bits(image)).convert("RGB")
    if image.mode == "La":
        image = image.convert("LA")
    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        layer = image.convert("RGBA")
        ground = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(ground, layer).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> NDArray[np.uint8]:
    """Return grey of more than eight bits, or in floats, as ``[H, W]`` of eight."""
    values = np.asarray(image)
    tags = getattr(image, "tag_v2", {})
    if values.dtype == np.int32 and _first(tags.get(_SAMPLE_FORMAT)) == _UNSIGNED:
        values = values.view(np.uint32)  # Pillow has no mode for them
    grey: NDArray[np.uint8]
    if values.dtype.kind == "f":
        grey = _of_floats(values)
    elif values.min(initial=0) < 0:
        grey = _stretched(values)  # such as Hounsfield units: only the maker's window would tell
    else:
        grey = (values >> (_bits(values, _first(tags.get(_BITS))) - 8)).astype(np.uint8)
    if _first(tags.get(_PHOTOMETRIC)) == _WHITE_IS_ZERO:
        grey = 255 - grey
    transparent = image.info.get("transparency")
    if transparent is not None:
        grey[values == transparent] = 255
    return grey


def _bits(values: NDArray[np.integer], declared: int | None) -> int:
    """Return how many bits are in use: as declared below 16, else 8, 12, 16 or 32 as they fit.

    Scanners and detectors store twelve bits in files of sixteen, and do not say so.
    """
    if declared is not None and 8 < declared < 16:
        return declared
    brightest = int(values.max(initial=0))
    return next(bits for bits in (8, 12, 16, 32) if brightest < 1 << bits)


def _of_floats(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return floats as eight bits: 1, 255 or 65,535 is white, the first that no value exceeds."""
    finite = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    white = next((top for top in (1, 255, 65_535) if finite.max(initial=0) <= top), None)
    if white is None or finite.min(initial=0) < 0:
        return _stretched(finite)
    return np.rint(finite * (255 / white)).astype(np.uint8)


def _stretched(values: NDArray[np.integer] | NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return values as eight bits, the lowest black and the highest white."""
    above: NDArray[np.float64] = values.astype(np.float64) - float(values.min())
    return np.rint(above * (255 / (float(above.max()) or 1.0))).astype(np.uint8)


def _first(value: object) -> int | None:
    """Return a tag's value, or the first of several; None where it is no number."""
    one = value[0] if isinstance(value, tuple) and value else value
    return one if isinstance(one, int) else None


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return what turns a loaded image upright; nothing where it is, or where nobody can tell."""
    try:
        return _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged EXIF data beside a picture that is whole
        return None


def _upright(image: Image.Image, turn: Image.Transpose | None) -> Image.Image:
    return image if turn is None else image.transpose(turn)


def _check_size(width: int, height: int, limit: int, where: str) -> None:
    """Check that a picture is neither empty nor too large, before it is decoded.

    Raises:
        DataError: If it is; says how large.
    """
    size = f"{width} x {height} pixels"
    short, long = sorted((width, height))
    if short < 1 or long > _MOST_SIDES * short:
        raise DataError(
            f"not a picture to train on: {size}", where=where, remedy="remove it, or crop it"
        )
    if width * height > limit:
        raise _too_many_pixels(f"{size}, more than {limit} in all", where)


def _too_many_pixels(what: str, where: str) -> DataError:
    return DataError(
        what,
        where=where,
        remedy=f"shrink it, remove it if you do not know it, or set the environment variable "
        f"{SETTING} to more",
    )


def _head(stream: IO[bytes]) -> bytes:
    """Return the first bytes of a file, none where it cannot be read any more."""
    try:
        stream.seek(0)
        return stream.read(512)
    except (OSError, ValueError):
        return b""


def _why(error: Exception) -> str:
    """Return why a picture cannot be decoded, without the name of the stream it came in."""
    unknown = isinstance(error, UnidentifiedImageError)
    return "its format is none that is known" if unknown else reason(error)


def _what_it_is(data: bytes) -> str:
    """Return the name of a format that is not decoded, nothing where it is not recognised."""
    known = next((name for magic, name in _UNDECODABLE.items() if data.startswith(magic)), "")
    if data[4:8] == b"ftyp":
        known = _CONTAINERS.get(data[8:12], "a film or an unknown container")
    return f"its format is {known}" if known else ""
