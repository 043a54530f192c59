"""Play a scene on a disk that fails at one call, judge what is left, and play it again without.

python -m tests.reliability.io_faults            every call, every fault, once and lasting
python -m tests.reliability.io_faults --short    every call, one fault each
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clma.errors import ClmaError
from clma.ledger.audit import audit
from clma.ledger.federation import Federation
from clma.ledger.keys import HEAD_KEY
from tests.reliability.faulty_disk import FAULTS, LASTING, Fault, FaultyDisk
from tests.reliability.small_night import NAME, Scene, drafts, scenes, visible

_MAX_CHARS = 400


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one fault.

    Parameters
    ----------
    scene : str
    fault : Fault
    message : str or None
        The one line of the failure; None where the scene went on all the same.
    problems : tuple of str
        Broken promises; empty is right.
    """

    scene: str
    fault: Fault
    message: str | None
    problems: tuple[str, ...]


def count_calls(scene: Scene) -> list[str]:
    """Return the kind of every call that a scene makes when nothing fails."""
    scene.start()
    with FaultyDisk(scene.stage) as disk:
        scene.act(scene.stage, lambda _: None)
    if disk.violations:
        raise AssertionError(disk.violations)
    return [kind for kind, _ in disk.calls]


def every_fault(kinds: list[str]) -> Iterator[Fault]:
    """Yield every fault at every call, once, and every lasting one from every call on."""
    for at, kind in enumerate(kinds):
        yield from (Fault(name, at) for name in FAULTS[kind])
        yield from (Fault(name, at, lasting=True) for name in LASTING if name in FAULTS[kind])


def one_fault_each(kinds: list[str]) -> Iterator[Fault]:
    """Yield one fault at every call; calls of one kind take turns through its faults."""
    seen: Counter[str] = Counter()
    for at, kind in enumerate(kinds):
        names = [(name, False) for name in FAULTS[kind]]
        names += [(name, True) for name in LASTING if name in FAULTS[kind]]
        name, lasting = names[seen[kind] % len(names)]
        seen[kind] += 1
        yield Fault(name, at, lasting)


def meet(scene: Scene, fault: Fault) -> Outcome:
    """Play a scene with a fault, and once more without."""
    scene.start()
    folder = scene.stage
    problems: list[str] = []
    disk = FaultyDisk(folder, fault)

    def received(inbox: Path) -> None:
        lost = [path for path in (*inbox.iterdir(), *inbox.parents) if path in disk.volatile]
        problems.extend(f"a receipt for {path.name}, which is not on the disk" for path in lost)

    message = None
    with disk:
        try:
            scene.act(folder, received)
        except ClmaError as error:
            message = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            problems.append(f"{type(error).__name__} instead of an expected failure: {error}")
    problems += disk.violations
    problems += _judge_line(message)
    problems += _judge_what_is_there(scene, folder)
    # What cannot be deleted stays; a lasting fault that spares deletions spares no draft.
    if "unlink" not in _kinds_hit(disk, fault):
        problems += [f"a draft is left: {path.name}" for path in drafts(folder)]
    if not disk.n_injected:
        problems.append("the fault was not met")
    problems += _judge_second_attempt(scene, folder, disk)
    return Outcome(scene.name, fault, message, tuple(problems))


def _kinds_hit(disk: FaultyDisk, fault: Fault) -> set[str]:
    return {kind for number, (kind, _) in enumerate(disk.calls) if fault.hits(number, kind)}


def _judge_line(message: str | None) -> Iterator[str]:
    if message is not None and ("\n" in message or not 10 < len(message) < _MAX_CHARS):
        yield f"not one clear line: {message!r}"


def _judge_what_is_there(scene: Scene, folder: Path) -> Iterator[str]:
    for name, data in visible(folder).items():
        # The head may name any entry that is there; the audit compares the two.
        if not name.endswith(HEAD_KEY) and data not in (
            scene.after.get(name),
            scene.earlier.get(name),
        ):
            yield f"{name} is not what an undisturbed run writes"
    try:
        yield from audit(Federation.open(folder / "store", NAME)).problems
    except ClmaError as error:
        yield f"the chain is broken: {error}"


def _judge_second_attempt(scene: Scene, folder: Path, disk: FaultyDisk) -> Iterator[str]:
    again = FaultyDisk(folder)
    again.volatile = disk.volatile
    try:
        with again:
            scene.act(folder, lambda _: None)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
        yield f"the second attempt fails: {type(error).__name__}: {error}"
    yield from again.violations
    if visible(folder) != scene.after:
        yield "the second attempt comes to other bytes"
    yield from (f"{path.name} is not on the disk in the end" for path in sorted(again.volatile))


def main(arguments: list[str]) -> int:
    """Print a line for every broken promise, and the verdict; return the exit code."""
    plan = one_fault_each if "--short" in arguments else every_fault
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    n_calls = 0
    with tempfile.TemporaryDirectory(prefix="clma-faults-") as name:
        for scene in scenes(Path(name)):
            kinds = count_calls(scene)
            n_calls += len(kinds)
            outcomes += [meet(scene, fault) for fault in plan(kinds)]
    for outcome in outcomes:
        for problem in outcome.problems:
            print(f"{outcome.scene} {outcome.fault}: {problem}")  # noqa: T201
    n_broken = sum(bool(outcome.problems) for outcome in outcomes)
    n_failed = sum(outcome.message is not None for outcome in outcomes)
    print(  # noqa: T201
        f"faulttest: {n_calls} calls, {len(outcomes)} faults: {n_failed} failed in one line, "
        f"{len(outcomes) - n_failed} survived, {n_broken} broke a promise; "
        f"{time.perf_counter() - start:.0f} s"
    )
    return int(n_broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
