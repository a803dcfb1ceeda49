"""A badge: the JSON that shields.io's endpoint badge reads."""

import json
from typing import Final

from checkpoint_conformance.plain import number, plain
from checkpoint_conformance.renderings.facts import Report, counts
from checkpoint_conformance.verdict import Status, Verdict

_COLOURS: Final = {
    Verdict.PASS: "brightgreen",
    Verdict.FAIL: "red",
    Verdict.INCOMPLETE: "yellow",
    Verdict.ERROR: "lightgrey",
}


def render(report: Report) -> str:
    """The badge: verdict and numbers, so that it never says more than was done."""
    verdict, found = Verdict(report["verdict"]), counts(report)
    of = f"{found[Status.PASSED]} of {number(len(report['rules']), 'rule')}"
    messages = {
        Verdict.PASS: f"pass, {of}",
        Verdict.FAIL: f"{number(found[Status.FAILED], 'rule')} broken"
        if found[Status.FAILED]
        else "expected failures to be removed",
        Verdict.INCOMPLETE: f"incomplete, {of}",
        Verdict.ERROR: "could not be checked",
    }
    badge = {
        "schemaVersion": 1,
        "label": f"workflow checkpoint {plain(report['versions'].get('contract', ''), 20)}".strip(),
        "message": messages[verdict],
        "color": _COLOURS[verdict],
        "isError": verdict in (Verdict.FAIL, Verdict.ERROR),
    }
    return json.dumps(badge, indent=2) + "\n"
