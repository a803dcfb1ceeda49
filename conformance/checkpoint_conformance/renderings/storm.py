"""``storm.html``: a judged storm to look at, one page that needs nothing else.

Everything on it comes from ``judgement.json``; where ``storm.json`` lies beside it, that gives the
storms their titles, and says where there was too little of one. The operations are drawn by the
page's own script on a canvas, because a thousand lines of SVG are slow and ten thousand are
unusable; what failed stands in the page itself as well, for whoever has no script.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from markupsafe import Markup

from checkpoint_conformance.judging import UNDECIDED, read_judgement
from checkpoint_conformance.plain import bounded, number, plain
from checkpoint_conformance.renderings.facts import ABSENT, VALUE_MAX
from checkpoint_conformance.renderings.faults import fault_rows, faults_line
from checkpoint_conformance.renderings.pages import digest, environment, own_file
from checkpoint_conformance.report import write_files
from checkpoint_conformance.rules import rules
from checkpoint_conformance.verdict import Verdict
from checkpoint_model import ErrorCode
from checkpoint_model.vocabulary import ERRORS
from checkpoint_model.wire import FLAGS

FILE_NAME: Final = "storm.html"
REPORT_NAME: Final = "storm.json"
"""What the command ``storm`` writes beside a judgement."""
Judgement: TypeAlias = Mapping[str, Any]
BURSTS_SHOWN_MAX: Final = 200
_TEXT_MAX: Final = 1500
_NS_PER_US: Final = 1000
_HEADLINES: Final = {
    Verdict.PASS: "One order explains every answer",
    Verdict.FAIL: "No order explains the answers",
    Verdict.INCOMPLETE: "Too little was seen to say",
    Verdict.ERROR: "The storm could not be made",
}
_UNDECIDED_HEADLINE: Final = "Whether one order explains every answer could not be decided"
"""Of a storm that fails although nothing in it is known to be wrong."""
_DERIVED: Final = frozenset(
    {"workflow_hash", "minimum_action_safety_margin_seconds", "external_proof", "charged"}
    | {"claim_ttl_seconds_remaining", "state_ttl_seconds_remaining", "allowed_next_actions"}
)
"""Members that say nothing of the order; the history has them."""
CHANGED, RESULT, REFUSED, TURNED_AWAY, UNKNOWN = range(5)
"""What an operation came to, as the page's script draws it: the record was changed by it; it was
told a result; it was refused by section 6; it was not decided and changed nothing; nobody knows."""


def write_storm_page(folder: Path) -> Path:
    """Render the judgement in a folder, and say where the page is.

    Raises:
        JudgementError: there is none that can be read.
        FolderError: the folder cannot be written.
    """
    page = render(read_judgement(folder), _report(folder))
    write_files(folder, {FILE_NAME: page})
    return folder / FILE_NAME


def _report(folder: Path) -> Mapping[str, Any]:
    """What ``storm`` wrote, where it did; a page can do without."""
    try:
        report = json.loads((folder / REPORT_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}


def render(judgement: Judgement, report: Mapping[str, Any] | None = None) -> str:
    """The page.

    Args:
        judgement: as ``judgement.schema.json`` has it.
        report: as ``storm.schema.json`` has it, where there is one.
    """
    told = {one["name"]: one for one in (report or {}).get("storms") or []}
    storms = [
        _storm(storm, told.get(storm["storm"]) or {}, index)
        for index, storm in enumerate(judgement["storms"])
    ]
    verdict = Verdict(judgement["verdict"])
    if verdict is Verdict.PASS and any(one["gaps"] for one in storms):
        verdict = Verdict.INCOMPLETE
    failures = [failure for one in storms for failure in one["failures"]]
    undecided = bool(failures) and all(failure["undecided"] for failure in failures)
    page_script = own_file("storm.js")
    data = [_drawn(storm) for storm in judgement["storms"]]
    return (
        environment()
        .get_template("storm.html.j2")
        .render(
            verdict=str(verdict),
            headline=_UNDECIDED_HEADLINE if undecided else _HEADLINES[verdict],
            line=judgement["line"],
            contract=judgement["contract"],
            targets=list(dict.fromkeys(one["target"] for one in storms)),
            storms=storms,
            failures=failures,
            found="What could not be decided" if undecided else "What is broken",
            drawn=sum(len(w["ops"]) for one in data for w in one["workflows"]),
            data=_embedded({"storms": data}),
            style=own_file("report.css") + own_file("storm.css"),
            script=page_script,
            script_digest=digest(page_script),
        )
    )


def _embedded(data: object) -> Markup:
    """JSON that no parser of HTML takes for the end of its element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e"))  # noqa: S704 - escaped


# -- what stands in the page itself -----------------------------------------------------


def _storm(storm: Mapping[str, Any], told: Mapping[str, Any], index: int) -> dict[str, Any]:
    gaps = list(dict.fromkeys([*storm["incomplete_because"], *told.get("incomplete_because", ())]))
    target = storm["target"]
    named = " ".join(str(target[m]) for m in ("name", "version") if target.get(m))
    return {
        "name": storm["storm"],
        "title": told.get("title") or f"The storm {storm['storm']}",
        "target": plain(f"{named} {target.get('url', '')}".strip(), 200),
        "verdict": storm["verdict"],
        "line": storm["line"],
        "gaps": gaps,
        "remarks": storm["remarks"],
        "facts": [(name, plain(value, 400)) for name, value in _facts(storm)],
        "rules": [
            (rule, found["status"], found["hits"], _text(rule))
            for rule, found in storm["rules"].items()
        ],
        "faults": list(fault_rows(storm["faults"])) if storm.get("faults") else [],
        "faults_line": faults_line(storm["faults"]) if storm.get("faults") else "",
        "latencies": _latencies(storm["latency_ms"]),
        "answers": list(storm["answers"].items()),
        "lost": list(storm["lost_because"].items()),
        "bursts": [_burst(burst) for burst in storm["bursts"][:BURSTS_SHOWN_MAX]],
        "bursts_left_out": max(len(storm["bursts"]) - BURSTS_SHOWN_MAX, 0),
        "failures": [_failure(failure, storm, index) for failure in storm["failures"]],
    }


def _text(rule_id: str) -> str:
    """A rule's own words."""
    rule = rules().get(rule_id)
    return "" if rule is None else rule.text


def _facts(storm: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    met = storm["contention"]
    yield "Workflows", ", ".join(f"{n:,} {kind}" for kind, n in storm["workflows"].items())
    yield "Calls", f"{storm['calls']:,} by {number(storm['clients'], 'client')}"
    judged = f"{storm['decided']:,} decided"
    lost = storm["lost"] + storm["not_told"]
    if lost:
        on_purpose = storm["dropped_on_purpose"]
        purpose = f" ({on_purpose:,} on purpose)" if on_purpose else ""
        judged += f", {lost:,} lost{purpose}: both worlds were tried"
    yield "Answers", judged
    yield "Throughput", f"{storm['requests_per_second']:,.0f} answers a second"
    if met["bursts"]:
        middle, most = met["spread_ms_median"], met["spread_ms_max"]
        bursts = number(met["bursts"], "burst")
        yield "Released within", f"{middle:.2f} ms in the median of {bursts}, {most:.2f} ms at most"
        middle, most = met["in_flight_median"], met["in_flight_max"]
        yield "In flight at once", f"{middle:g} in the median burst, {most:,} at most"
    else:
        yield "In flight at once", f"{met['in_flight_max']:,} at most"
    parameters = storm["parameters"]
    if parameters:
        yield "Parameters", "; ".join(_parameter(*pair) for pair in parameters.items())
    yield "Begun", storm["started_at"].replace("T", " ").replace("Z", " UTC")


def _parameter(name: str, value: object) -> str:
    listed = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{name.replace('_', ' ')} {'—' if value is None else listed}"


def _latencies(by_action: Mapping[str, Any]) -> list[dict[str, Any]]:
    longest = max((row["max"] for row in by_action.values()), default=0) or 1
    return [
        {"action": action, **row, "shares": {m: 100 * row[m] / longest for m in ("p50", "p99")}}
        for action, row in by_action.items()
    ]


def _burst(burst: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{member: burst[member] for member in ("round", "burst", "calls", "spread_ms")},
        "in_flight": burst["in_flight"],
        "winners": [
            f"{plain(w['client'], 40)} {w['flag']}"
            + ("" if w["generation"] is None else f" generation {w['generation']}")
            + f" after {w['after_ms']:.1f} ms"
            for w in burst["winners"]
        ],
    }


def _failure(failure: Mapping[str, Any], storm: Mapping[str, Any], index: int) -> dict[str, Any]:
    place = next((n for n, shown in enumerate(storm["shown"]) if shown["failure"] == failure), None)
    operation = failure.get("operation")
    expected, got = failure.get("expected_members") or {}, failure.get("got_members") or {}
    members = [*(failure.get("differs") or ())]
    return {
        "storm": storm["storm"],
        "rules": [
            (rule, rules()[rule].text if rule in rules() else "") for rule in failure["rules"]
        ],
        "undecided": failure["kind"] == UNDECIDED,
        **{member: plain(failure.get(member) or "", _TEXT_MAX) for member in _SAID},
        "workflow": plain((failure.get("workflow") or {}).get("workflow_key", ""), 100),
        "differing": [(m, _value(expected, m), _value(got, m)) for m in members],
        "state": _state(failure),
        "goto": None if place is None or operation is None else f"{index},{place},{operation}",
    }


_SAID: Final = ("what", "expected", "got", "why")


def _value(members: Mapping[str, Any], name: str) -> str:
    return plain(json.dumps(members[name]), VALUE_MAX) if name in members else ABSENT


def _state(failure: Mapping[str, Any]) -> str:
    """The record at the place where the operation cannot be put."""
    if failure["kind"] != "illegal":
        return ""
    record = failure.get("state")
    if record is None:
        return "no record"
    ends = record["claim_expires_at"]
    claim = f"claim abandoned at {ends}" if record["abandoned"] else f"claim until {ends}"
    return (
        f"{record['stage']}, generation {record['generation']}, held by "
        f"{plain(record['holder'], 80)}, {claim}, last changed at {record['changed_at']}"
    )


# -- what the script draws --------------------------------------------------------------


class _Table:
    """Each value once: most requests, and nearly all answers of a burst, are alike."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        """Where a value is, from now on if it is new."""
        key = json.dumps(value)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]


def _drawn(storm: Mapping[str, Any]) -> dict[str, Any]:
    lanes, bursts, requests, answers = _Table(), _Table(), _Table(), _Table()
    begins = _begins(storm["shown"])
    workflows = []
    for shown in storm["shown"]:
        changing = {state["place"] for state in shown["states"]}
        ops = [
            [
                lanes.place(_lane(op["client"])),
                plain(op["client"], 60),
                _holder(op["request"]),
                requests.place(_request(op["request"])),
                bursts.place([op["round"], op["burst"]]),
                *_times(op, shown["base_ns"] - begins[op["clock"]]),
                answers.place(_answer(op)),
                _kind(op, changing),
                op["place"],
            ]
            for op in shown["operations"]
        ]
        workflows.append(
            {
                "key": plain(shown["workflow_key"], 80),
                "round": shown["round"],
                "verdict": shown["verdict"],
                "why": plain(shown["why"], _TEXT_MAX),
                "ops": ops,
                "order": [placed["operation"] for placed in shown["order"]],
                "observed": [placed["observed_at_ms"] for placed in shown["order"]],
                "states": [[s["place"], s["rule"], _record(s["record"])] for s in shown["states"]],
                "failure": _drawn_failure(shown["failure"]),
            }
        )
    return {
        "name": plain(storm["storm"], 40),
        "clocks": len(begins),
        "workflows": workflows,
        "lanes": lanes.values,
        "bursts": bursts.values,
        "requests": requests.values,
        "answers": answers.values,
    }


def _begins(shown: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The first call by each clock: only times of one clock can be compared."""
    begins: dict[str, int] = {}
    for workflow in shown:
        for op in workflow["operations"]:
            at_ns = workflow["base_ns"] + op["called_ns"]
            begins[op["clock"]] = min(at_ns, begins.get(op["clock"], at_ns))
    return begins


def _lane(client: str) -> str:
    """A contender: one that lost an answer goes on under its name with another number behind."""
    stem, dot, life = client.rpartition(".")
    return plain(stem if dot and life.isdecimal() and stem else client, 40)


def _holder(request: Mapping[str, Any]) -> str:
    return plain(request.get("holder") or "", 80)


def _request(request: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = bounded({m: v for m, v in request.items() if m != "holder"})
    return kept


def _times(op: Mapping[str, Any], base_ns: int) -> list[float | None]:
    """Call, last byte handed over, answer and giving up, in microseconds from the first call."""
    return [
        None if op[member] is None else round((op[member] + base_ns) / _NS_PER_US, 1)
        for member in ("called_ns", "sent_ns", "returned_ns", "gave_up_ns")
    ]


def _answer(op: Mapping[str, Any]) -> list[Any]:
    """In a word, and its members but for those that say nothing here."""
    if op["answer"] is None:
        lost = op["lost"] or {"reason": "no answer"}
        return [plain(lost["reason"], 80), None]
    members = op["answer"]["members"]
    if members is None:
        return [f"HTTP {op['answer']['status']}", None]
    kept = {m: v for m, v in members.items() if m not in _DERIVED}
    code = members.get("code")
    if code is not None:
        return [plain(code, 60), kept]
    raised = [flag for flag in FLAGS if members.get(flag) is True]
    return [" ".join(raised) or "result", kept]


def _kind(op: Mapping[str, Any], changing: set[int]) -> int:
    if op["place"] in changing:
        return CHANGED
    answer = op["answer"]
    members = (answer or {}).get("members") or {}
    code = members.get("code")
    if isinstance(code, str) and code in ErrorCode.__members__:
        known = ErrorCode(code)
        if ERRORS[known].decided:
            return REFUSED
        return UNKNOWN if known is ErrorCode.DEPENDENCY_UNAVAILABLE else TURNED_AWAY
    return RESULT if answer is not None and answer["status"] == 200 else UNKNOWN


def _record(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if record is None else {**record, "holder": plain(record["holder"], 80)}


def _drawn_failure(failure: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    kept = ("rules", "kind", "what", "expected", "got", "why", "operation", "earlier")
    more = ("expected_members", "got_members", "differs", "state")
    told: dict[str, Any] = bounded({member: failure.get(member) for member in (*kept, *more)})
    return told
