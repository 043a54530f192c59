"""Pictures of a comparison: differences with their intervals, and F1 by round.

Examples
--------
>>> from clma.report.comparison import PairedDifference
>>> gain = PairedDifference(0.1, 0.02, 5, 5, 0, 0.08, 0.12)
>>> difference_chart({"fedavg": gain}, ours="clma", title="drifted F1").axes[0].get_title("left")
'drifted F1: clma minus ...'
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from clma.errors import EmptyCohortError
from clma.report.comparison import PairedDifference
from clma.report.figures import canvas

__all__ = ["difference_chart"]

_FOR, _AGAINST, _OPEN = "#009E73", "#D55E00", "#777777"


def difference_chart(
    differences: Mapping[str, PairedDifference], *, ours: str, title: str
) -> Figure:
    """Draw one method minus each other one, with the 95 % interval of the mean.

    Parameters
    ----------
    differences : mapping of method to PairedDifference
        Drawn from top to bottom in this order. Not modified.
    ours : str
    title : str
        Of the figure that is compared.

    Raises
    ------
    EmptyCohortError
        If there is no difference.
    """
    if not differences:
        raise EmptyCohortError(f"differences in {title!r}: no method to draw, wanted one")
    figure, axes = canvas(width=6.6, height=1.2 + 0.32 * len(differences))
    for y, difference in enumerate(differences.values()):
        color = _color(difference)
        if difference.low is not None and difference.high is not None:
            axes.hlines(y, difference.low, difference.high, color=color, linewidth=2.2)
        axes.plot([difference.mean], [y], marker="o", color=color, markersize=6)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(differences)), list(differences))
    axes.set_ylim(len(differences) - 0.5, -0.5)
    axes.set_title(f"{title}: {ours} minus ...", loc="left")
    axes.set_xlabel("difference of macro-F1, 95 % interval of the mean over seeds")
    axes.grid(visible=True, axis="x", color="#DDDDDD")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def _color(difference: PairedDifference) -> str:
    if difference.low is not None and difference.low > 0:
        return _FOR
    return _AGAINST if difference.high is not None and difference.high < 0 else _OPEN
