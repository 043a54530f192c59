from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from clma.encoders.flatten import Flatten
from clma.errors import ShapeMismatchError
from clma.simulation import embeddings
from clma.simulation.embeddings import embed_images

PIXELS = np.random.default_rng(0).integers(0, 256, size=(7, 4, 4), dtype=np.uint8)


class Counting:
    """Flattens images and counts those that it sees."""

    fingerprint = "counting"

    def __init__(self, size: int = 4) -> None:
        self._flatten = Flatten((3, size, size))
        self.dim = self._flatten.dim
        self.n_seen = 0

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.n_seen += len(batch)
        return self._flatten(batch)


def _embed(
    cache: Path | None, encoder: Counting | None = None, style: str = "base", pixels=PIXELS
) -> np.ndarray:
    return embed_images(pixels, style, encoder or Counting(), size=4, cache=cache)


def _made(cache: Path, **changes: object) -> int:
    """Return how many images were embedded and not found."""
    encoder = Counting()
    _embed(cache, encoder, **changes)
    return encoder.n_seen


def test_grey_images_have_three_equal_channels_in_0_to_1() -> None:
    embedded = _embed(None).reshape(7, 3, 4, 4)

    for channel in range(3):
        np.testing.assert_allclose(embedded[:, channel], PIXELS / 255.0, rtol=1e-6)


def test_colour_images_come_channels_first() -> None:
    colour = np.random.default_rng(1).integers(0, 256, size=(2, 4, 4, 3), dtype=np.uint8)

    embedded = _embed(None, pixels=colour).reshape(2, 3, 4, 4)

    np.testing.assert_allclose(embedded, colour.transpose(0, 3, 1, 2) / 255.0, rtol=1e-6)


def test_style_comes_before_the_encoder() -> None:
    np.testing.assert_allclose(_embed(None, style="invert"), 1.0 - _embed(None), atol=1e-6)


def test_small_images_are_resized_and_stay_in_range() -> None:
    pytest.importorskip("torch")
    seen = embed_images(PIXELS, "base", Counting(8), size=8).reshape(7, 3, 8, 8)

    assert 0.0 <= seen.min() < seen.max() <= 1.0
    np.testing.assert_allclose(seen.mean(), PIXELS.mean() / 255, atol=0.02)


def test_what_is_kept_is_not_embedded_again_and_is_the_same(tmp_path: Path) -> None:
    first = _embed(tmp_path)

    assert _made(tmp_path) == 0
    np.testing.assert_array_equal(_embed(tmp_path), first)


@pytest.mark.parametrize("change", [{"style": "invert"}, {"pixels": 255 - PIXELS}])
def test_other_styles_and_other_pixels_are_embedded_anew(
    tmp_path: Path, change: dict[str, object]
) -> None:
    _embed(tmp_path)

    assert _made(tmp_path, **change) == 7


def test_other_encoder_does_not_get_the_embeddings_of_the_first(tmp_path: Path) -> None:
    class Doubled(Counting):
        fingerprint = "doubled"

        def __call__(self, batch: np.ndarray) -> np.ndarray:
            return 2 * super().__call__(batch)

    np.testing.assert_allclose(_embed(tmp_path, Doubled()), 2 * _embed(tmp_path), rtol=1e-6)


@pytest.mark.parametrize("spoil", ["cut", "empty", "foreign", "flipped"])
def test_file_that_is_not_what_was_written_is_made_anew(tmp_path: Path, spoil: str) -> None:
    wanted = _embed(tmp_path)
    (place,) = tmp_path.glob("*.npy")
    content = place.read_bytes()
    flipped = content[:200] + bytes([content[200] ^ 1]) + content[201:]
    spoilt = {"cut": content[:-9], "empty": b"", "foreign": b"PK\x03\x04" * 9, "flipped": flipped}
    place.write_bytes(spoilt[spoil])

    np.testing.assert_array_equal(_embed(tmp_path), wanted)
    assert place.read_bytes() == content


def test_embeddings_of_another_key_under_this_name_are_not_taken(tmp_path: Path) -> None:
    _embed(tmp_path, style="invert")
    (other,) = tmp_path.glob("*.npy")
    wanted = _embed(tmp_path)
    (place,) = set(tmp_path.glob("*.npy")) - {other}
    place.write_bytes(other.read_bytes())

    np.testing.assert_array_equal(_embed(tmp_path), wanted)


def test_kept_file_is_a_plain_array_for_others(tmp_path: Path) -> None:
    wanted = _embed(tmp_path)
    (place,) = tmp_path.glob("*.npy")

    np.testing.assert_array_equal(np.load(place), wanted)


def test_pieces_are_kept_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "PIECE", 3)
    wanted = _embed(None)

    np.testing.assert_array_equal(_embed(tmp_path), wanted)
    sorted(tmp_path.glob("*.npy"))[0].unlink()
    assert _made(tmp_path) in (1, 3)


def test_of_several_that_want_the_same_images_one_embeds_them(tmp_path: Path) -> None:
    encoders = [Counting() for _ in range(4)]
    threads = [threading.Thread(target=_embed, args=(tmp_path, e)) for e in encoders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(e.n_seen for e in encoders) == [0, 0, 0, 7]


def test_progress_is_told_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "QUIET_S", 0.0)
    monkeypatch.setattr(embeddings, "EVERY_S", 0.0)
    told: list[str] = []

    embed_images(PIXELS, "base", Counting(), size=4, say=told.append)

    assert told[0].startswith("embedding images (base): 2 of 7, about ")
    assert told[-1].startswith("embedding images (base): 7 of 7, about 0 s left")


@pytest.mark.parametrize("shape", [(7, 4), (7, 4, 5), (7, 4, 5, 3)])
def test_images_that_are_not_square_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeMismatchError, match=r"wanted \(n, side, side\)"):
        embed_images(np.zeros(shape, np.uint8), "base", Counting(), size=4)
