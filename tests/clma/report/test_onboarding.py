from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from clma.cohorting.automatic_k import choose_groups
from clma.errors import EmptyCohortError
from clma.report.figures import png_bytes
from clma.report.onboarding import client_map, onboarding_figure


def test_map_keeps_distances_that_lie_in_a_plane() -> None:
    places = np.random.default_rng(0).normal(size=(8, 2))
    distances = squareform(pdist(places))

    np.testing.assert_allclose(squareform(pdist(client_map(distances))), distances, atol=1e-9)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_clients_have_a_map(n: int) -> None:
    places = client_map(np.ones((n, n)) - np.eye(n))

    assert places.shape == (n, 2)
    assert np.isfinite(places).all()


@pytest.mark.parametrize("sizes", [(1,), (1, 1), (3, 4, 5)])
def test_every_fleet_can_be_drawn(sizes: tuple[int, ...]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    distances = np.where(np.equal.outer(groups, groups), 0.1, 1.0)
    np.fill_diagonal(distances, 0.0)
    choice = choose_groups(distances)

    figure = onboarding_figure(distances, choice, [f"c{g}" for g in groups], title="north")

    assert png_bytes(figure).startswith(b"\x89PNG")
    assert figure.axes[0].get_title(loc="left").startswith("north: ")


def test_fleet_without_a_client_is_refused() -> None:
    with pytest.raises(EmptyCohortError, match="'north': no client to draw"):
        onboarding_figure(np.zeros((0, 0)), choose_groups(np.zeros((0, 0))), [], title="north")
