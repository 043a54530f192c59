"""Spoil updates in every known way and see that the gate holds.

Run ``python -m tests.fuzz.mutate --files 10000 --seed 1``; a fault is made again with
``--files 1 --first NUMBER``. The last line is the verdict; the exit status says the same.
"""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.campaign import BATCH, Tally, run_campaign

MAX_SECONDS = 2.0
MAX_RSS_MB = 300.0


def main(arguments: list[str] | None = None) -> int:
    """Run a campaign and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.mutate", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    chosen = parser.parse_args(arguments)
    tally = run_campaign(chosen.files, chosen.seed, first=chosen.first)
    for line in lines_of(tally):
        sys.stdout.write(line + "\n")
    return 0 if holds(tally) else 1


def holds(tally: Tally) -> bool:
    """Tell whether nothing went wrong."""
    return not tally.faults and tally.max_seconds <= MAX_SECONDS and tally.max_rss_mb <= MAX_RSS_MB


def lines_of(tally: Tally) -> list[str]:
    """Return the report, the verdict last."""
    n_changed = tally.n_files - tally.n_equivalent - tally.n_identical
    lines = [f"  {reason:20} {n}" for reason, n in tally.reasons.most_common()]
    lines += [f"fault: {fault}" for fault in tally.faults[:20]]
    lines.append(
        f"{tally.n_equivalent} files said the same otherwise and were taken, "
        f"{tally.n_identical} came out unchanged; {len(tally.kinds)} kinds of mutations"
    )
    verdict = "holds" if holds(tally) else "FAILED"
    lines.append(
        f"fuzz {verdict}: {tally.n_files} files, {tally.n_crashes} crashes, "
        f"{tally.n_refused} of {n_changed} changed files refused with a reason, "
        f"{len(tally.faults)} faults; a round of up to {BATCH} files took at most "
        f"{tally.max_seconds:.2f} s and {tally.max_rss_mb:.0f} MB more"
    )
    return lines


if __name__ == "__main__":
    sys.exit(main())
