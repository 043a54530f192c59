from __future__ import annotations

import numpy as np
import pytest

from clma.encoders.contract import encode
from clma.encoders.embedded import Embedded
from clma.errors import InvalidConfigError, InvalidUpdateError, ShapeMismatchError

ROWS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def test_embeddings_stay_as_they_are_under_the_name_of_their_encoder() -> None:
    encoder = Embedded(3, fingerprint="network")

    np.testing.assert_array_equal(encode(encoder, ROWS), ROWS)
    assert (encoder.dim, encoder.fingerprint) == (3, "network")


def test_rows_of_another_length_and_numbers_that_are_none_are_refused() -> None:
    encoder = Embedded(4, fingerprint="network")

    with pytest.raises(ShapeMismatchError, match=r"wanted \(n, 4\)"):
        encoder(ROWS)
    with pytest.raises(InvalidUpdateError, match="sample 0 has values that are NaN"):
        encoder(np.full((1, 4), np.nan))


@pytest.mark.parametrize(("dim", "fingerprint"), [(0, "network"), (3, "")])
def test_encoder_without_a_size_or_a_name_is_refused(dim: int, fingerprint: str) -> None:
    with pytest.raises(InvalidConfigError, match="wanted both"):
        Embedded(dim, fingerprint=fingerprint)
