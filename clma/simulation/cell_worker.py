"""A process that runs cells one after the other: a cell on stdin, what it came to on stdout.

One line of JSON each way. Whoever starts it (`clma.simulation.cell_workers`) limits the threads of
its mathematics in the environment, where every library reads it before it starts any.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import BinaryIO, NoReturn

from clma.errors import ClmaError
from clma.simulation.cells import Cell, parse_cell, render_result

__all__ = ["serve"]

_WARM_UP = Cell("plant/stationary", "fedavg", 0, n_rounds=1)
"""Libraries are loaded at their first use; whichever method came first would seem slow."""


def serve(requests: BinaryIO, replies: BinaryIO, data_dir: Path | None) -> None:
    """Answer every line of `requests` with one line of `replies`, until there is none.

    A line of a reply is a result, or an object with ``error`` (one line) and ``details``.
    """
    for number, line in enumerate(requests):
        if number == 0:
            _answer(_WARM_UP, None)
        replies.write(_answer(parse_cell(line), data_dir) + b"\n")
        replies.flush()


def _answer(cell: Cell, data_dir: Path | None) -> bytes:
    # torch is loaded here and not in the process that hands out the cells.
    from clma.simulation.run_cell import run_cell

    try:
        return render_result(run_cell(cell, data_dir))
    except (ClmaError, OSError) as error:
        failure = {"error": _one_line(error), "details": ""}
    except Exception as error:  # noqa: BLE001 - a bug in one method must not cost the other cells
        name = type(error).__name__
        failure = {"error": f"{name}: {_one_line(error)}", "details": traceback.format_exc()}
    return json.dumps(failure).encode()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _leave(_signal: int, _frame: object) -> NoReturn:
    # Unwinds the stack, so that the cell's folder is removed.
    sys.exit(143)


def _main() -> None:
    signal.signal(signal.SIGTERM, _leave)
    # An interrupt on the terminal is for whoever started us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "wb")
    # What a library prints must not be taken for a reply.
    os.dup2(2, 1)
    serve(sys.stdin.buffer, replies, Path(sys.argv[1]) if len(sys.argv) > 1 else None)


if __name__ == "__main__":
    _main()
