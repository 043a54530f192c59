"""Find a model's output layer from the names and shapes of its tensors alone.

What clients that drifted in opposite ways have in common is that they unlearn the old labels, all
over the model; in the layer that names the labels they part (`docs/methods.md`).

Examples
--------
>>> def linear(name: str, n_in: int, n_out: int) -> list[TensorSpec]:
...     weight = TensorSpec(f"{name}.weight", "F32", (n_out, n_in))
...     return [weight, TensorSpec(f"{name}.bias", "F32", (n_out,))]
>>> find_output_layer([*linear("hidden", 64, 32), *linear("head", 32, 10)])
'head'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clma.config import CohortingConfig
from clma.errors import InvalidConfigError
from clma.parameters.selectors import layer_of, select_default
from clma.records import TensorSpec

__all__ = ["NO_LAYER", "find_output_layer", "output_tensors"]

NO_LAYER = "none"
"""Name of no layer: compare whole updates only."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer with weights: `takes` and `gives` are sizes of what goes in and comes out."""

    name: str
    takes: frozenset[int]
    gives: int
    linear: bool


def output_tensors(specs: Sequence[TensorSpec], config: CohortingConfig) -> tuple[str, ...]:
    """Return the learned tensors of the output layer; none where there is no telling.

    Parameters
    ----------
    specs : sequence of TensorSpec
    config : CohortingConfig
        Its `output_layer` names the layer, or leaves it to be found.

    Raises
    ------
    InvalidConfigError
        If the model has no layer of that name.
    """
    names = select_default(specs)
    layer = config.output_layer or find_output_layer(specs)
    if layer is None or config.output_layer == NO_LAYER:
        return ()
    found = tuple(n for n in names if n == layer or n.startswith((f"{layer}.", f"{layer}/")))
    if not found:
        layers = sorted({layer_of(name) for name in names})
        raise InvalidConfigError(
            f"cohorting.output_layer: the model has no layer {layer!r}, it has {', '.join(layers)}"
        )
    return found


def find_output_layer(specs: Sequence[TensorSpec]) -> str | None:
    """Return the name of the linear layer whose outputs no other layer takes.

    Parameters
    ----------
    specs : sequence of TensorSpec
        Of the whole model, in any order.

    Returns
    -------
    str or None
        Names of its tensors without their last part. None where the shapes leave a doubt: several
        layers fit, none does, or one fits if outputs come first in the shape of a weight (torch)
        and another if they come last (Keras), which only biases tell apart.

    Notes
    -----
    A layer takes another's outputs if it has inputs of that number. Some layer must feed the output
    layer, with as many values or, flattened, with a multiple of a convolution's channels: a layer
    that nobody feeds may be the first one of a generator. What a convolution with one input channel
    takes is the network's own input, or it looks at every channel by itself.
    """
    weights = _by_layer(specs)
    found = {
        _sink(layers)
        for outputs_first in (True, False)
        if (layers := _read(weights, outputs_first=outputs_first)) is not None
    }
    return found.pop() if len(found) == 1 else None


def _by_layer(specs: Sequence[TensorSpec]) -> dict[str, list[TensorSpec]]:
    learned = set(select_default(specs))
    layers: dict[str, list[TensorSpec]] = {}
    for spec in sorted((s for s in specs if s.name in learned), key=lambda s: s.name):
        layers.setdefault(layer_of(spec.name), []).append(spec)
    return layers


def _read(
    weights: Mapping[str, Sequence[TensorSpec]], *, outputs_first: bool
) -> list[_Layer] | None:
    """Read the shapes one way; None if a bias contradicts."""
    layers = []
    for name, specs in weights.items():
        matrices = [s.shape for s in specs if len(s.shape) >= 2]
        biases = [s.shape[0] for s in specs if len(s.shape) == 1]
        if len(matrices) > 1:
            # A cell of several matrices: whatever meets one of its sizes may lead into it.
            sizes = frozenset(size for shape in matrices for size in shape)
            layers.append(_Layer(name, sizes, 0, linear=False))
        elif matrices:
            shape = matrices[0]
            gives, takes = (shape[0], shape[1]) if outputs_first else (shape[-1], shape[-2])
            if any(size != gives for size in biases):
                return None
            linear = len(shape) == 2
            taken = frozenset({takes}) if linear or takes > 1 else frozenset[int]()
            layers.append(_Layer(name, taken, gives, linear=linear))
    return layers


def _sink(layers: Sequence[_Layer]) -> str | None:
    """Return the one linear layer that is fed and feeds nobody."""
    ends = [
        layer.name
        for layer in layers
        if layer.linear
        and not any(layer.gives in other.takes for other in layers if other is not layer)
    ]
    fed = [layer for layer in layers if layer.name in ends and _is_fed(layer, layers)]
    return fed[0].name if len(ends) == len(fed) == 1 else None


def _is_fed(layer: _Layer, layers: Sequence[_Layer]) -> bool:
    others = [other for other in layers if other is not layer]
    return not others or any(_feeds(other, layer) for other in others)


def _feeds(layer: _Layer, other: _Layer) -> bool:
    if not layer.gives:  # a cell gives one of its sizes
        return bool(layer.takes & other.takes)
    if layer.linear:
        return layer.gives in other.takes
    # A single channel divides everything, and is rather what a generator ends in.
    return layer.gives > 1 and any(size % layer.gives == 0 for size in other.takes)
