"""The server: one line of strategy; the rest is Flower."""

from __future__ import annotations

from collections import Counter

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from clma.adapters.flower import CLMA
from drift_app.task import N_NODES, new_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and say who ended where."""
    config = context.run_config
    strategy = CLMA(
        preset=str(config.get("preset", "clma")),
        min_train_nodes=N_NODES,
        min_evaluate_nodes=N_NODES,
        min_available_nodes=N_NODES,
    )
    n_rounds = int(config.get("num-server-rounds", 10))
    result = strategy.start(grid, new_model(), num_rounds=n_rounds)
    accuracy = result.evaluate_metrics_clientapp[n_rounds]["accuracy"]
    sizes = sorted(Counter(strategy.cohorts.values()).items())
    print(f"accuracy {accuracy:.2f}; " + ", ".join(f"{name}: {n} nodes" for name, n in sizes))
