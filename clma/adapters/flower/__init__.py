"""CLMA for Flower: a strategy of its message API, and the drift flag for a ``ClientApp``.

A server app::

    from clma.adapters.flower import CLMA

    strategy = CLMA(store="federations/north", federation="north")
    result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=10)

and the training function of a client app::

    from clma.adapters.flower import DriftReporter

    @app.train()
    def train(msg, context):
        data = fresh_data(context)
        reporter = DriftReporter(context)
        reporter.look(msg, lambda arrays: losses(arrays, data))
        model = fit(msg.content["arrays"], data)
        return reporter.build_reply(msg, ArrayRecord(model.state_dict()), num_examples=len(data))

Detection, quarantine, cohorts and aggregation are those of the nightly rounds: the strategy puts
every reply into the inbox of a federation and closes its round (`clma.night`).
"""

from __future__ import annotations

from clma.errors import MissingExtraError

try:
    import flwr.serverapp.strategy  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "clma.adapters.flower needs flwr: pip install 'clma[flower]'"
    ) from error

from clma.adapters.flower.reporter import DriftReporter, cohort_id
from clma.adapters.flower.strategy import CLMA

__all__ = ["CLMA", "DriftReporter", "cohort_id"]
