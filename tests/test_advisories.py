from __future__ import annotations

import tomllib
from typing import Any

from tests.advisories import ACCEPTED, judge, lines_of

CLEAN = {"name": "numpy", "version": "2", "vulns": []}
BAD = {"name": "zipp", "version": "1", "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"]}]}
UNKNOWN = {"name": "ours", "skip_reason": "not found"}


def report(*packages: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(packages)}


def test_a_finding_fails_the_audit_and_is_named() -> None:
    audit = judge(report(CLEAN, BAD), {})
    assert not audit.holds
    assert lines_of(audit)[0] == "finding: zipp 1: PYSEC-1"


def test_a_finding_with_a_reason_is_accepted_under_any_of_its_names() -> None:
    assert judge(report(CLEAN, BAD), {"CVE-1": "not reached"}).holds


def test_a_reason_for_nothing_is_to_be_removed() -> None:
    assert judge(report(CLEAN), {"CVE-1": "not reached"}).unused == ("CVE-1",)


def test_what_was_not_looked_up_is_not_in_order() -> None:
    assert judge(report(CLEAN), {}).holds
    assert not judge(report(CLEAN, UNKNOWN), {}).holds
    assert "no advisory source answered" in lines_of(judge(report(UNKNOWN), {}))[-1]


def test_every_accepted_advisory_has_a_reason() -> None:
    accepted = tomllib.loads(ACCEPTED.read_text(encoding="utf-8"))["accepted"]
    assert all(isinstance(reason, str) and reason.strip() for reason in accepted.values())
