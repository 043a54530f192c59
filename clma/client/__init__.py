"""What a plant runs: pull its model, look for drift, train, submit. Needs no server software.

A night at a plant, with `train` and `losses_of` its own::

    pulled = pull(url, "north", "plant-a", Path("model.safetensors"))
    reporter = DriftReporter(pulled.drift, Path("drift.json"))
    reading = reporter.observe(losses_of(pulled.path), round_num=pulled.round_num)
    if reading.drift_detected and pulled.choice_on_drift:
        pulled = pull(url, "north", "plant-a", pulled.path, drifted=True)
    choice = choose(pulled, losses_of, reporter)
    n_examples = train(choice.path, out=Path("trained.safetensors"))
    submit(
        url,
        "north",
        "plant-a",
        tensors=Path("trained.safetensors"),
        n_examples=n_examples,
        drift_flag=reading.drift_detected,
        confirm=choice.confirm,
        base_digest=choice.digest,
        pulled=pulled,
    )
"""

from __future__ import annotations

from clma.client.access import PlantStatus
from clma.client.ask import RequestReceipt, request_round
from clma.client.choice import Choice, best_model, choose
from clma.client.model_file import read_parameters, write_parameters
from clma.client.monitor import InferenceDriftMonitor, MonitorReading
from clma.client.pull import ModelOfChoice, PulledModel, pull
from clma.client.reach import status
from clma.client.reporter import DriftReporter
from clma.client.sign import SignatureReceipt, send_signature
from clma.client.submit import SubmitReceipt, submit
from clma.client.watch import watch

__all__ = [
    "Choice",
    "DriftReporter",
    "InferenceDriftMonitor",
    "ModelOfChoice",
    "MonitorReading",
    "PlantStatus",
    "PulledModel",
    "RequestReceipt",
    "SignatureReceipt",
    "SubmitReceipt",
    "best_model",
    "choose",
    "pull",
    "read_parameters",
    "request_round",
    "send_signature",
    "status",
    "submit",
    "watch",
    "write_parameters",
]
