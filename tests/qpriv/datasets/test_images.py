"""Pictures as their maker meant them, and those that are refused."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from qpriv.datasets import images
from qpriv.datasets.images import FORMATS, decode_image
from qpriv.errors import ConfigError, DataError
from tests.data import pictures

BITS, PHOTOMETRIC = 258, 262


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixels(data):
    return np.asarray(decode_image(data, "picture"))


def grey_levels(data):
    """Return the first row of a picture that must be grey."""
    found = pixels(data)
    assert (found == found[..., :1]).all()
    return found[0, :, 0].tolist()


def tiff(row, bits, sample_format=1, photometric=1, **tags):
    """Return a TIFF of one row, written tag by tag: Pillow writes neither 12 bits nor float64."""
    data = row.tobytes()
    if bits == 12:
        pairs = row.reshape(-1, 2).astype(int)
        data = bytes(byte for a, b in pairs for byte in (a >> 4, (a & 15) << 4 | b >> 8, b & 255))
    width = row.size
    entries = {
        256: (4, width), 257: (4, 1), 258: (3, bits), 259: (3, 1), 262: (3, photometric),
        273: (4, 8), 277: (3, 1), 278: (4, 1), 279: (4, len(data)), 339: (3, sample_format),
    }  # fmt: skip
    entries |= {int(tag): value for tag, value in tags.items()}
    data += b"\0" * (len(data) % 2)
    table = b"".join(
        struct.pack("<HHI", tag, kind, 1) + struct.pack("<I" if kind == 4 else "<Hxx", value)
        for tag, (kind, value) in sorted(entries.items())
    )
    head = struct.pack("<2sHI", b"II", 42, 8 + len(data))
    return head + data + struct.pack("<H", len(entries)) + table + b"\0" * 4


@pytest.mark.parametrize(
    ("data", "levels"),
    [
        (tiff(np.array([0, 16, 2048, 4095], np.uint16), 12), [0, 1, 128, 255]),
        # twelve bits declared: dark, but not eight bits
        (tiff(np.array([0, 16, 32, 255], np.uint16), 12), [0, 1, 2, 15]),
        (tiff(np.array([0, 256, 32768, 65535], np.uint16), 16), [0, 1, 128, 255]),
        (tiff(np.array([0, 16, 2048, 4095], np.uint16), 16), [0, 1, 128, 255]),
        (tiff(np.array([0, 100, 255], np.uint16), 16), [0, 100, 255]),
        (tiff(np.array([0, 256, 65535], np.uint16), 16, photometric=0), [255, 254, 0]),
        (tiff(np.array([0, 2**24, 2**32 - 1], np.uint32), 32), [0, 1, 255]),
        (tiff(np.array([-1000, 0, 1000], np.int16), 16, 2), [0, 128, 255]),
        (tiff(np.array([0, 0.5, 1], np.float32), 32, 3), [0, 128, 255]),
        (tiff(np.array([0, 0.5, 1], np.float32), 32, 3, photometric=0), [255, 127, 0]),
        (tiff(np.array([0, 100, 255], np.float32), 32, 3), [0, 100, 255]),
        (tiff(np.array([0, 257, 65535], np.float32), 32, 3), [0, 1, 255]),
        (tiff(np.array([-1, 0, 1], np.float32), 32, 3), [0, 128, 255]),
        (tiff(np.array([np.nan, np.inf, 1], np.float32), 32, 3), [0, 0, 255]),
        (tiff(np.array([7, 7], np.int16) - 9, 16, 2), [0, 0]),
        (encoded(Image.fromarray(np.array([[0, 256, 65535]], np.uint16)), "PNG"), [0, 1, 255]),
        (encoded(Image.fromarray(np.array([[0, 16, 4095]], np.uint16)), "PNG"), [0, 1, 255]),
        (encoded(Image.fromarray(np.array([[0, 1, 0]], bool)), "PNG"), [0, 255, 0]),
    ],
)  # fmt: skip
def test_grey_of_any_depth_keeps_its_upper_bits(data, levels):
    assert grey_levels(data) == levels


def test_a_transparent_level_of_sixteen_bits_is_white():
    grey = Image.fromarray(np.array([[0, 256, 65535]], np.uint16))
    assert grey_levels(encoded(grey, "PNG", transparency=0)) == [255, 1, 255]


def test_colour_of_sixteen_bits_keeps_the_upper_eight():
    row = np.array([0, 256, 65535, 32768, 4096, 255], ">u2").tobytes()  # two pixels of RGB

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0))
    data += chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")
    assert pixels(data).tolist() == [[[0, 1, 255], [128, 16, 0]]]


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk_is_ink_on_white(kind):
    ink = Image.new("CMYK", (16, 16), (255, 0, 0, 0))  # cyan alone
    black = Image.new("CMYK", (16, 16), (0, 0, 0, 255))
    options = {"quality": 100} if kind == "JPEG" else {}
    assert np.abs(pixels(encoded(ink, kind, **options)) - np.array([0.0, 255, 255])).max() <= 2
    assert pixels(encoded(black, kind, **options)).max() <= 2


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_what_is_transparent_shows_white(kind):
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    image.putpixel((1, 0), (255, 0, 0, 128))
    options = {"lossless": True} if kind == "WEBP" else {}
    assert pixels(encoded(image, kind, **options)).tolist() == [[[255, 255, 255], [255, 127, 127]]]


@pytest.mark.parametrize("mode", ["LA", "La", "PA", "P", "L", "1", "RGB"])
def test_transparency_in_every_mode_shows_white(mode):
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))
    if mode == "La":
        converted = image.convert("LA").convert("La")
    elif mode == "LA":
        converted = image.convert("LA")
    elif mode == "PA":
        converted = Image.new("PA", (2, 1), (0, 255))
        converted.putpalette([0, 0, 0])
        converted.putpixel((1, 0), (0, 0))
    else:
        converted = Image.new("RGB", (2, 1), 0)
        converted.putpixel((1, 0), (255, 255, 255))
        converted = converted.convert(mode)
        converted.info["transparency"] = converted.getpixel((1, 0))
    assert np.asarray(images.to_rgb(converted)).tolist() == [[[0, 0, 0], [255, 255, 255]]]


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_camera_held_otherwise_gives_an_upright_picture(kind, turn):
    shown = Image.fromarray(
        np.kron(np.array([[0, 80, 160], [255, 40, 120]], np.uint8), np.ones((16, 16), np.uint8))
    ).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = turn
    # the camera stores what its sensor saw: turned back by what the reader will turn
    stored = shown if turn == 1 else shown.transpose(_INVERSE[turn])
    data = encoded(stored, kind, exif=exif.tobytes() if kind != "TIFF" else exif)
    assert ImageOps.exif_transpose(Image.open(io.BytesIO(data))).size == shown.size
    assert (
        np.abs(pixels(data).astype(int) - np.asarray(shown)).max() <= 12
    )  # JPEG's and WebP's loss


_INVERSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_a_whole_picture_beside_damaged_exif_data_is_shown_as_stored():
    data = encoded(pictures.picture(1), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff\1\2\3")
    assert pixels(data).shape == (10, 12, 3)


def test_of_several_pictures_the_first_is_shown():
    for kind in ("GIF", "TIFF", "WEBP"):
        frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
        options = {"lossless": True} if kind == "WEBP" else {}
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert pixels(data)[0, 0].tolist() == [255, 0, 0]


def test_a_name_does_not_start_a_program(tmp_path, monkeypatch):
    marker = tmp_path / "started"
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {marker}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    data = encoded(pictures.picture(1), "EPS")
    with pytest.raises(DataError, match=r"its format is PostScript.*picture.*convert"):
        decode_image(data, "picture.jpg")
    assert not marker.exists()


@pytest.mark.parametrize(
    "kind", ["PPM", "ICO", "DDS", "PCX", "SGI", "TGA", "IM", "MSP", "JPEG2000"]
)
def test_formats_of_no_set_are_refused(kind):
    if kind == "MSP":
        data = encoded(pictures.picture(1).convert("1"), kind)
    elif kind == "ICO":
        data = encoded(pictures.picture(1), kind, sizes=[(12, 10)])
    else:
        data = encoded(pictures.picture(1), kind)
    with pytest.raises(DataError, match="not a readable image") as caught:
        decode_image(data, "x.jpg")
    assert " at 0x" not in str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_of_the_list_is_decoded(kind):
    assert decode_image(encoded(pictures.picture(1), kind), "x").size == (12, 10)


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(monkeypatch):
    data = encoded(Image.new("L", (300, 200)), "PNG")
    monkeypatch.setenv(images.SETTING, "59999")
    with pytest.raises(DataError, match=rf"300 x 200 pixels, more than 59999.*{images.SETTING}"):
        decode_image(data, "x.png")
    monkeypatch.setenv(images.SETTING, "60000")
    assert decode_image(data, "x.png").size == (300, 200)
    monkeypatch.setenv(images.SETTING, "many")
    with pytest.raises(ConfigError, match="'many' is no limit"):
        decode_image(data, "x.png")


def test_a_bomb_is_refused_from_its_header_alone():
    header = struct.pack(
        "<2sIHHIIiiHHIIiiII", b"BM", 54, 0, 0, 54, 40, 60_000, 50_000, 1, 24, *[0] * 6
    )
    with pytest.raises(DataError, match=images.SETTING):
        decode_image(header, "x.bmp")


def test_the_users_own_limit_lifts_that_of_pillow(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # it raises above twice as many
    monkeypatch.setenv(images.SETTING, "1000")
    assert decode_image(encoded(Image.new("L", (30, 30)), "PNG"), "x").size == (30, 30)
    assert Image.MAX_IMAGE_PIXELS == 1000


@pytest.mark.parametrize("size", [(1, 201), (4030, 20)])
def test_a_strip_that_would_grow_beyond_memory_is_refused(size):
    with pytest.raises(DataError, match=rf"{size[0]} x {size[1]} pixels.*crop"):
        decode_image(encoded(Image.new("L", size), "PNG"), "x.png")
