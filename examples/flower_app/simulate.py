"""Run the app in Flower's simulation engine, in this process: ``python simulate.py``."""

from __future__ import annotations

from drift_app.client_app import app as client_app
from drift_app.server_app import app as server_app
from drift_app.task import N_NODES
from flwr.simulation import run_simulation

if __name__ == "__main__":
    run_simulation(server_app, client_app, N_NODES)
