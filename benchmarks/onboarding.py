"""First cohorts from signatures: which reading of the distance finds which kind of groups.

    python -m benchmarks.onboarding --seeds 100:110

Twelve clients of 80 images each of scikit-learn's digits, as pixels and as features of one random
layer. The kinds: groups that differ in style (upright, inverted, turned, shifted), in what the
labels mean, in the labels they have (overlapping or disjoint), and fleets that are one group; class
shares equal or drawn from a Dirichlet distribution. A figure is the adjusted Rand index against the
groups, for fleets of one group the share of fleets that stayed one; mean over seeds. ``K given`` is
told how many groups there are.

The last lines compare two rules for the number of groups on the same distances: the published
dominant local maximum of the silhouettes, and their global maximum in the same window.

    python -m benchmarks.onboarding --seeds 110:111 --picture onboarding.png

draws the curve and the map of the kind "three label sets" instead.

    python -m benchmarks.onboarding --scale 1000x100x1280

takes the time and the memory of so many clients, classes and features instead, on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.meter import Meter
from clma.cohorting.automatic_k import GroupChoice, choose_groups
from clma.cohorting.class_distances import class_distances
from clma.config import OnboardingConfig, preset_config
from clma.encoders.contract import Encoder, fingerprint_of
from clma.encoders.flatten import Flatten
from clma.report.figures import png_bytes
from clma.report.onboarding import onboarding_figure
from clma.signatures.fmcl import sign_by_class_means
from clma.signatures.signature import Signature
from tasks.comparison_request import parse_seeds

N_CLIENTS = 12
N_SAMPLES = 80

Images = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fleet.

    Parameters
    ----------
    name : str
    n_groups : int
    styles : tuple of str
        Of the groups.
    relabelled : bool
        Labels mean something else in each group.
    n_labels : int
        Labels that a group has, three on from the group before; 0: all.
    disjoint : bool
        Groups share no label.
    alpha : float or None
        Dirichlet concentration of a client's class shares; None: equal shares.
    """

    name: str
    n_groups: int
    styles: tuple[str, ...] = ("upright",)
    relabelled: bool = False
    n_labels: int = 0
    disjoint: bool = False
    alpha: float | None = None


THREE_STYLES = ("upright", "inverted", "turned")
NEAR_AND_FAR = ("upright", "shifted", "inverted")
KINDS = (
    Kind("two styles", 2, THREE_STYLES),
    Kind("three styles", 3, THREE_STYLES),
    Kind("three styles, shares .5", 3, THREE_STYLES, alpha=0.5),
    Kind("two near styles, one far", 3, NEAR_AND_FAR),
    Kind("two near, one far, shares 1", 3, NEAR_AND_FAR, alpha=1.0),
    Kind("three meanings of labels", 3, relabelled=True),
    Kind("three label sets", 3, n_labels=5),
    Kind("three label sets, shares 1", 3, n_labels=5, alpha=1.0),
    Kind("two label sets, shares 1", 2, n_labels=5, alpha=1.0),
    Kind("three disjoint label sets", 3, disjoint=True),
    Kind("three disjoint, shares .5", 3, disjoint=True, alpha=0.5),
    Kind("one group", 1),
    Kind("one group, shares 5", 1, alpha=5.0),
    Kind("one group, shares 1", 1, alpha=1.0),
)


def draw_fleet(
    kind: Kind, images: Images, labels: NDArray[np.int64], rng: np.random.Generator
) -> list[tuple[Images, NDArray[np.int64]]]:
    """Draw each client's images and labels; client k is of group k modulo the groups."""
    return [_draw_client(kind, k % kind.n_groups, images, labels, rng) for k in range(N_CLIENTS)]


def _draw_client(
    kind: Kind, group: int, images: Images, labels: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Images, NDArray[np.int64]]:
    classes = np.arange(10)
    if kind.n_labels:
        classes = (3 * group + np.arange(kind.n_labels)) % 10
    if kind.disjoint:
        classes = np.array_split(classes, kind.n_groups)[group]
    shares = np.full(len(classes), 1 / len(classes))
    if kind.alpha is not None:
        shares = rng.dirichlet(np.full(len(classes), kind.alpha))
    drawn = rng.choice(classes, N_SAMPLES, p=shares)
    rows = np.array([rng.choice(np.flatnonzero(labels == label)) for label in drawn])
    told = (drawn + 3 * group) % 10 if kind.relabelled else drawn
    return STYLES[kind.styles[group % len(kind.styles)]](images[rows]), told


STYLES: Mapping[str, Callable[[Images], Images]] = {
    "upright": lambda images: images,
    "inverted": lambda images: 1 - images,
    "turned": lambda images: np.rot90(images, axes=(1, 2)),
    "shifted": lambda images: np.roll(images, 2, axis=2),
}


class RandomLayer:
    """Features of one layer with random weights, never trained.

    Parameters
    ----------
    seed : int, >= 0
    """

    dim = 256

    def __init__(self, seed: int = 0) -> None:
        self._weights = np.random.default_rng(seed).normal(size=(64, self.dim)) / 8
        self.fingerprint = fingerprint_of("random-layer", 1, {"seed": seed})

    def __call__(self, batch: NDArray[Any]) -> NDArray[np.float32]:
        """Map images of shape (n, 8, 8) to features of shape (n, 256)."""
        features = np.maximum(batch.reshape(len(batch), -1) @ self._weights, 0)
        return np.asarray(features, np.float32)


ENCODERS: Mapping[str, Encoder] = {"pixels": Flatten((8, 8)), "random": RandomLayer()}

PICTURED = next(kind for kind in KINDS if kind.name == "three label sets")

READINGS: Mapping[str, Mapping[str, Any]] = {
    "fmcl": {},
    "K given": {"n_groups": -1},
    "additive, global": {"center": "global"},
    "additive, no centre": {"center": "none"},
    "penalize, global": {"overlap": "penalize"},
    "penalize, no centre": {"overlap": "penalize", "center": "none"},
    "none, global": {"overlap": "none"},
    "sum, global": {"overlap": "sum"},
    "fmcl-paper": {"overlap": "penalize", "center": "none", "silhouette_floor": 0.05},
}


def sign_fleet(
    fleet: Sequence[tuple[Images, NDArray[np.int64]]], encoder: Encoder
) -> dict[str, Signature]:
    """Return every client's signature."""
    return {f"p{k:02d}": sign_by_class_means(x, y, encoder) for k, (x, y) in enumerate(fleet)}


def group_fleet(
    signatures: Mapping[str, Signature], kind: Kind, changes: Mapping[str, Any]
) -> GroupChoice:
    """Group a fleet by preset ``fmcl`` with some settings changed; -1 groups is the true number."""
    settings = dict(changes)
    if settings.get("n_groups") == -1:
        settings["n_groups"] = kind.n_groups
    share = ["weights", "examples", "signature"]
    config = preset_config("bench", "fmcl", privacy={"share": share}, onboarding=settings)
    return _grouped(signatures, config.onboarding)


def _grouped(signatures: Mapping[str, Signature], config: OnboardingConfig) -> GroupChoice:
    return choose_groups(
        _distances(signatures, config),
        method=config.linkage,
        n_groups=config.n_groups,
        silhouette_floor=config.silhouette_floor,
        alike_within=config.alike_within,
    )


def _distances(
    signatures: Mapping[str, Signature], config: OnboardingConfig
) -> NDArray[np.float64]:
    return class_distances(
        signatures,
        overlap=config.overlap,
        center=config.center,
        penalty=config.penalty,
        percentile=config.percentile,
    ).distances


def global_maximum(choice: GroupChoice) -> int:
    """Return the number of groups of the largest silhouette in the window, of equals the least."""
    inside = {k: s for k, s in choice.silhouettes if choice.window[0] <= k <= choice.window[1]}
    return max(inside, key=lambda k: (inside[k], -k))


def _picture(fleet: Sequence[tuple[Images, NDArray[np.int64]]]) -> bytes:
    signatures = sign_fleet(fleet, ENCODERS["pixels"])
    config = OnboardingConfig(method="fmcl")
    choice = _grouped(signatures, config)
    cohorts = [f"c{label}" for label in choice.labels]
    figure = onboarding_figure(_distances(signatures, config), choice, cohorts, title="digits")
    return png_bytes(figure)


def time_scale(n_clients: int, n_classes: int, n_features: int) -> str:
    """Return one line: seconds and memory to group clients of five random kinds."""
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(5, n_classes, n_features)).astype(np.float32)
    signatures = {}
    for client in range(n_clients):
        noise = 0.3 * rng.normal(size=(n_classes, n_features)).astype(np.float32)
        arrays = {
            "classes": np.arange(n_classes),
            "means": kinds[client % 5] + noise,
            "shares": np.full(n_classes, 1 / n_classes),
        }
        signatures[f"p{client:05d}"] = Signature("fmcl", arrays, "random")
    with Meter() as measuring:
        distances = _distances(signatures, OnboardingConfig(method="fmcl"))
    with Meter() as grouping:
        choice = choose_groups(distances)
    sent = sum(s.size_bytes for s in signatures.values()) / 1e6
    return (
        f"{n_clients} clients, {n_classes} classes, {n_features} features: {sent:.0f} MB of "
        f"signatures; distances {measuring.reading.cpu_s:.1f} s of one core, "
        f"{measuring.reading.over_bytes / 1e6:.0f} MB beside them; "
        f"groups {grouping.reading.cpu_s:.2f} s; {choice.n_groups} groups"
    )


def main(
    seeds: Annotated[str, typer.Option("--seeds", help="FIRST:END, END excluded.")] = "100:110",
    picture: Annotated[
        Path | None, typer.Option("--picture", help="PNG of one fleet, instead of tables.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option("--scale", help="CLIENTSxCLASSESxFEATURES, instead of tables.")
    ] = None,
) -> None:
    """Print one table an encoder."""
    if scale is not None:
        n_clients, n_classes, n_features = map(int, scale.split("x"))
        print(time_scale(n_clients, n_classes, n_features))
        return
    from sklearn.datasets import load_digits
    from sklearn.metrics import adjusted_rand_score

    pixels, labels = load_digits(return_X_y=True)
    images = pixels.reshape(-1, 8, 8) / 16
    if picture is not None:
        rng = np.random.default_rng(parse_seeds(seeds)[0])
        picture.write_bytes(_picture(draw_fleet(PICTURED, images, labels, rng)))
        return
    n_choices = n_differ = 0
    for name, encoder in ENCODERS.items():
        print(f"\n| {name} | " + " | ".join(READINGS) + " |\n|---" + "|---" * len(READINGS) + "|")
        for kind in KINDS:
            truth = [k % kind.n_groups for k in range(N_CLIENTS)]
            scores: dict[str, list[float]] = {reading: [] for reading in READINGS}
            for seed in parse_seeds(seeds):
                fleet = draw_fleet(kind, images, labels, np.random.default_rng(seed))
                signatures = sign_fleet(fleet, encoder)
                for reading, changes in READINGS.items():
                    choice = group_fleet(signatures, kind, changes)
                    alone = float(choice.n_groups == 1)
                    index = float(adjusted_rand_score(truth, choice.labels))
                    scores[reading].append(alone if kind.n_groups == 1 else index)
                    if choice.rule == "local maximum":
                        n_choices += 1
                        n_differ += global_maximum(choice) != choice.n_groups
            row = " | ".join(f"{np.mean(values):.2f}" for values in scores.values())
            print(f"| {kind.name} | {row} |")
    print(
        f"\nlocal maximum against global maximum: {n_choices} numbers of groups chosen, "
        f"{n_differ} of them differ"
    )


if __name__ == "__main__":
    typer.run(main)
