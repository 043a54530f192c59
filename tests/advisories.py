"""Compare ``constraints.txt`` with the published advisories: ``make audit``.

pip-audit ends with success when it could look nothing up, because no advisory source answered. Here
that is a failure: what was not looked at was not found to be in order.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ACCEPTED = ROOT / "tests" / "accepted_advisories.toml"


@dataclass(frozen=True, slots=True)
class Audit:
    """What is known of the pinned packages.

    Parameters
    ----------
    n_checked, n_skipped : int
        Packages that were looked up, and that no source knew.
    findings : tuple of str
        Advisories that nobody has accepted, with their packages.
    unused : tuple of str
        Accepted advisories that no package has any more.
    """

    n_checked: int
    n_skipped: int
    findings: tuple[str, ...]
    unused: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether everything was looked up and nothing is left to decide."""
        return self.n_checked > 0 and not (self.n_skipped or self.findings or self.unused)


def judge(report: Mapping[str, Any], accepted: Mapping[str, str]) -> Audit:
    """Read pip-audit's JSON report."""
    packages = report["dependencies"]
    checked = [p for p in packages if "skip_reason" not in p]
    findings, seen = [], set()
    for package in checked:
        for advisory in package["vulns"]:
            known = {advisory["id"], *advisory.get("aliases", ())} & set(accepted)
            seen |= known
            if not known:
                findings.append(f"{package['name']} {package['version']}: {advisory['id']}")
    unused = tuple(sorted(set(accepted) - seen)) if checked else ()
    return Audit(len(checked), len(packages) - len(checked), tuple(findings), unused)


def lines_of(audit: Audit) -> list[str]:
    """Return the report, the verdict last."""
    lines = [f"finding: {finding}" for finding in audit.findings]
    lines += [f"accepted, but no longer there: {advisory}" for advisory in audit.unused]
    word = "holds" if audit.holds else "FAILED"
    hint = "" if audit.n_checked else "; no advisory source answered"
    lines.append(
        f"audit {word}: {audit.n_checked} packages looked up, {audit.n_skipped} not, "
        f"{len(audit.findings)} findings without a reason{hint}"
    )
    return lines


def main() -> int:
    """Run pip-audit on the pinned packages and print what it found."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(ROOT / "constraints.txt")]
    command += ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        sys.stdout.write(f"audit FAILED: pip-audit did not report: {last[:200]}\n")
        return 1
    accepted = tomllib.loads(ACCEPTED.read_text(encoding="utf-8"))["accepted"]
    audit = judge(report, accepted)
    sys.stdout.write("\n".join(lines_of(audit)) + "\n")
    return 0 if audit.holds else 1


if __name__ == "__main__":
    sys.exit(main())
