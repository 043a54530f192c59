"""Embed the images of scenarios before their cells are run, in a process of its own.

Otherwise the first cells of a comparison would do it, minutes long and without a word. A process of
its own because whoever hands out the cells loads no torch.

    python -m clma.simulation.prepare_images DATA_DIR SCENARIO...
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from clma.errors import CellFailedError, ClmaError
from clma.simulation.cell_scenario import load_cell_fleet
from clma.simulation.scenarios import is_embedded

__all__ = ["prepare_images"]


def prepare_images(scenarios: Iterable[str], data_dir: Path | None) -> None:
    """Embed what is not in the cache yet; progress is shown on stderr.

    Parameters
    ----------
    scenarios : iterable of str
        Those whose clients do not train on embeddings are left out.
    data_dir : Path or None
        Folder of recorded data.

    Raises
    ------
    CellFailedError
        If it fails: data or the packages of the encoder are missing, say.
    """
    embedded = sorted({name for name in scenarios if is_embedded(name)})
    if not embedded or data_dir is None:
        return  # without data each cell says what it wants
    command = [sys.executable, "-m", "clma.simulation.prepare_images", str(data_dir), *embedded]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise CellFailedError(done.stdout.strip() or f"embedding images: status {done.returncode}")


def _main(data_dir: str, *scenarios: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever started us says what was interrupted
    for name in scenarios:
        try:
            # Which images there are and in which styles does not depend on the seed.
            load_cell_fleet(name, 0, Path(data_dir))
        except (ClmaError, OSError) as error:
            sys.stdout.write(" ".join(str(error).split()))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
