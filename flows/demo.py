"""Watch a fleet drift for ten nights: real training, real rounds, every decision on disk.

    python -m flows.demo
    python -m flows.demo --data pronto_process_1hz.parquet --recipe pronto --preset clma --seed 7

Every night is a run of the `nightly` flow, as a schedule would start it. The plants are simulated;
they pull, train and submit like real ones.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from clma.config import requirements
from clma.errors import ConflictError, InvalidConfigError
from clma.ledger.federation import Federation
from clma.simulation.fleet import Fleet
from clma.simulation.life import RoundView, found_federation, live
from clma.simulation.recipes import load_fleet
from clma.simulation.scores import FleetScores
from flows._commands import ROOT, failures_in_one_line, noticed_interrupts, orchestrated
from flows._progress import DemoScreen

__all__ = ["DemoPlaces", "DemoRequest", "demo", "found_or_reopen"]

PREFECT_PORT = 4200


@dataclasses.dataclass(frozen=True, slots=True)
class DemoRequest:
    """What is asked for; a demo that was interrupted goes on only with the same request.

    Parameters
    ----------
    recipe : str
        Of `clma.simulation.load_fleet`.
    data : str or None
        Recorded table, where the recipe replays one.
    preset : str
    n_rounds, seed : int
    settings : tuple of str
        ``section.key=value``.
    """

    recipe: str = "plant"
    data: str | None = None
    preset: str = "clma"
    n_rounds: int = 10
    seed: int = 0
    settings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DemoPlaces:
    """Where a demo keeps what it makes, all below one folder."""

    root: Path
    federation: str

    @property
    def store(self) -> Path:
        """The federation folder."""
        return self.root / "federations" / self.federation

    @property
    def plants(self) -> Path:
        """The plants' own disks, and the request."""
        return self.root / "federations" / f"{self.federation}-plants"

    @property
    def prefect_home(self) -> Path:
        """All of Prefect's state."""
        return self.root / ".prefect"

    @property
    def tracking_uri(self) -> str:
        """MLflow's database, unless the user has a server."""
        own = f"sqlite:///{(self.root / 'mlruns' / 'mlflow.db').resolve()}"
        return os.environ.get("MLFLOW_TRACKING_URI") or own


def demo(
    places: DemoPlaces,
    fleet: Fleet,
    federation: Federation,
    n_rounds: int,
    watch: Callable[[RoundView], None],
) -> FleetScores:
    """Let a fleet live through its nights; Prefect has to be there.

    Parameters
    ----------
    places : DemoPlaces
    fleet : Fleet
    federation : Federation
        With an open round.
    n_rounds : int
    watch : callable
        Is shown every round.
    """
    from flows.nightly import nightly
    from tasks.publish_scores import publish_scores

    store = str(places.store.resolve())

    def close(_round_num: int) -> None:
        nightly(store, federation.name, now=True, tracking_uri=places.tracking_uri)

    seen: list[RoundView] = []

    def watch_and_publish(view: RoundView) -> None:
        seen.append(view)
        publish_scores(federation, fleet, seen, places.tracking_uri)
        watch(view)

    return live(
        fleet,
        federation,
        places.plants,
        n_rounds=n_rounds,
        close=close,
        watch=watch_and_publish,
    )


def found_or_reopen(places: DemoPlaces, request: DemoRequest, fleet: Fleet) -> Federation:
    """Make the demo's federation, or go on with the one that an interrupted demo left.

    Raises
    ------
    ConflictError
        If a demo with other settings is there.
    """
    note = places.plants / "request.json"
    text = json.dumps(dataclasses.asdict(request))
    if (places.store / "ledger").exists():
        if not note.exists() or note.read_text(encoding="utf-8") != text:
            raise ConflictError(
                f"{places.store} holds a demo with other settings; "
                "give another --out or --federation"
            )
        return Federation.open(places.store, places.federation)
    if "signature" in requirements(request.preset):
        raise InvalidConfigError(
            f"preset {request.preset!r} needs signatures of the clients' data, the nightly flow "
            "has none; it runs on simulated fleets in one process only"
        )
    federation = found_federation(
        fleet,
        places.store,
        places.federation,
        places.plants,
        preset=request.preset,
        n_rounds=request.n_rounds,
        overrides=request.settings,
        # A simulated loss is nobody's secret, and the curves need it.
        share=("loss",),
    )
    note.write_text(text, encoding="utf-8")
    return federation


def _free_name(root: Path) -> str:
    """Return ``demo``, or ``demo-2`` and so on where earlier demos were finished."""
    number = 1
    while True:
        name = "demo" if number == 1 else f"demo-{number}"
        if not (root / "federations" / f"{name}-plants" / "finished").exists():
            return name
        number += 1


def _until(
    noticed: threading.Event, show: Callable[[RoundView], None]
) -> Callable[[RoundView], None]:
    def show_and_stop(view: RoundView) -> None:
        show(view)
        if noticed.is_set():
            raise KeyboardInterrupt

    return show_and_stop


def _facts(
    places: DemoPlaces, request: DemoRequest, scores: FleetScores, seconds: float
) -> Mapping[str, Any]:
    return {
        "store": str(places.store.resolve()),
        "federation": places.federation,
        "mlflow_uri": places.tracking_uri,
        "prefect_home": str(places.prefect_home.resolve()),
        "rounds": request.n_rounds,
        "preset": request.preset,
        "recipe": request.recipe,
        "seed": request.seed,
        **dataclasses.asdict(scores),
        "seconds": round(seconds, 1),
    }


def _main(
    data: Annotated[
        Path | None, typer.Option("--data", help="Recorded table (Parquet) to replay.")
    ] = None,
    recipe: Annotated[str, typer.Option("--recipe", help="Fleet to simulate.")] = "plant",
    preset: Annotated[str, typer.Option("--preset", help="Set of settings.")] = "clma",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Nights.")] = 10,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of data, model and training.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for everything; default: the project.")
    ] = None,
    federation: Annotated[
        str | None, typer.Option("--federation", help="Name; default: demo, demo-2 ...")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value over the preset.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Run a fleet through its nights; an interrupted demo goes on when it is started again."""
    started = time.monotonic()
    root = out or ROOT
    with failures_in_one_line(wrong_setting=2):
        request = DemoRequest(
            recipe, None if data is None else str(data), preset, rounds, seed, tuple(settings or ())
        )
        fleet = load_fleet(data, recipe, seed)
        places = DemoPlaces(root, federation or _free_name(root))
        made = found_or_reopen(places, request, fleet)
        screen = DemoScreen(fleet, places.federation)
        screen.start(places.store, made.config.privacy.share)
        try:
            with (
                orchestrated(places.prefect_home, port=PREFECT_PORT),
                noticed_interrupts() as event,
            ):
                show = _until(event, screen.show_round)
                scores = demo(places, fleet, made, rounds, show)
        except KeyboardInterrupt:
            typer.echo("interrupted: the same command goes on from here", err=True)
            raise typer.Exit(130) from None
    (places.plants / "finished").touch()
    facts = _facts(places, request, scores, time.monotonic() - started)
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        screen.show_result(facts)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(epilog="Example: python -m flows.demo --rounds 10 --seed 0 --out /tmp/demo")(_main)
    app()
