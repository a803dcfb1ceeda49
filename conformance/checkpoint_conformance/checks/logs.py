"""Section 10 with the logs: no line shows an identifier that the run sent.

Not one of the checks that a run goes through: a server that is told to stop may log then, too, so
this comes when it has stopped, or at the very end where somebody else runs it.
"""

from pathlib import Path
from typing import Final

from checkpoint_conformance.answers import Fault
from checkpoint_conformance.run import Run

SHOWN_MAX: Final = 5


def judge_logs(run: Run) -> None:
    """Look through what the target logged (WC-PRIV-1), where that may be read."""
    logs = run.target.logs
    if logs is None:
        return
    logs.look()
    for path, why in logs.unreadable.items():
        run.tally.leave_out(f"the log {path} could not be read: {why}")
    if logs.places:
        run.check_name = "logs"
        more = len(logs.places) - SHOWN_MAX
        run.session().report(
            Fault(
                rules=("WC-PRIV-1",),
                what="what the implementation logs",
                expected="no raw identifier in any line",
                got="; ".join(map(str, logs.places[:SHOWN_MAX])) + (" …" if more > 0 else ""),
            )
        )
        return
    for path, size in logs.read_bytes.items():
        if path not in logs.unreadable:
            run.tally.remark(_remark(path, size))
            run.tally.hit("WC-PRIV-1")


def _remark(path: Path, size: int) -> str:
    if size == 0:
        return f"Nothing was written to the log {path.name} during the run."
    return f"No raw identifier is in the {size:,} bytes that the run left in the log {path.name}."
