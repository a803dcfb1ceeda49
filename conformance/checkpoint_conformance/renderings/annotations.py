"""GitHub annotations: workflow commands, which a job's log turns into marks on its page.

GitHub shows ten of each kind for one step, so what is beyond that is said in the last of them.
"""

from collections.abc import Iterator
from typing import Final

from checkpoint_conformance.plain import plain
from checkpoint_conformance.renderings.facts import (
    Report,
    cause_of,
    commands,
    is_expected,
    summary,
    text_of,
)
from checkpoint_conformance.verdict import Verdict

EACH_MAX: Final = 10
MESSAGE_MAX: Final = 4000
COMMANDS_MAX: Final = 12


def render(report: Report) -> str:
    """One command a line."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    verdict = Verdict(report["verdict"])
    failures = [f for f in report["failures"] if not is_expected(report, f)]
    room = EACH_MAX if len(failures) <= EACH_MAX else EACH_MAX - 1
    for failure in failures[:room]:
        rule = plain(failure["rules"][0], 40)
        lines = commands(failure)
        sequence = lines if len(lines) <= COMMANDS_MAX else ["…", *lines[-COMMANDS_MAX:]]
        cause = cause_of(report, rule)
        said = [summary(failure), "", text_of(report, rule)]
        said += [f"Usual cause: {cause}"] if cause else []
        message = "\n".join([*said, "", *sequence])
        yield _command("error", f"{rule} is broken", message)
    if failures[room:]:
        others = ", ".join(plain(failure["rules"][0], 40) for failure in failures[room:])
        yield _command("error", f"{len(failures) - room} more rules are broken", others)
    if verdict is Verdict.ERROR:
        yield _command("error", "The conformance run could not be made", plain(report["line"]))
        return
    for why in (report.get("not_as_expected") or [])[:EACH_MAX]:
        yield _command("error", "Not as expected", plain(why))
    gaps = report.get("incomplete_because") or []
    title = "Beside that" if verdict is Verdict.FAIL else "Incomplete"
    for gap in gaps[:EACH_MAX]:
        yield _command("warning", title, plain(gap))
    yield _command("notice", "Workflow Checkpoint conformance", plain(report["line"]))


def _command(kind: str, title: str, message: str) -> str:
    cut = plain(message, MESSAGE_MAX, lines=True)
    return f"::{kind} title={_property(title)}::{_data(cut)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
