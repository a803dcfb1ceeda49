"""``storm.json``: what a run of storms saw and came to; ``storm.schema.json`` describes it.

It is written when the run begins, saying *incomplete*, and replaced at its end, so that whatever
was killed on the way never looks like a pass.
"""

import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from checkpoint_conformance.history import HistoryError, read_file
from checkpoint_conformance.report import FolderError, write_files
from checkpoint_conformance.verdict import Verdict
from checkpoint_model import CONTRACT_VERSION

FORMAT: Final = 1
"""The version of the report's shape; a member that changes its meaning raises it."""
FILE_NAME: Final = "storm.json"
LOCUST_HTML: Final = "locust.html"
LOCUST_JSON: Final = "locust.json"
LOCUST_LOG: Final = "locust.log"
PAGE: Final = "storm.html"
JUDGEMENT: Final = "judgement.json"


def begin(folder: Path, *, seed: int) -> None:
    """Make a folder ready for a run: what an earlier one left there is removed.

    Raises:
        FolderError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (FILE_NAME, LOCUST_HTML, LOCUST_JSON, LOCUST_LOG, PAGE, JUDGEMENT):
            (folder / name).unlink(missing_ok=True)
        for path in folder.glob("*.jsonl"):
            with suppress(HistoryError):
                read_file(path)
                path.unlink()  # a history, and no other file that ends like one
    except OSError as error:
        raise FolderError(f"cannot write the report to {folder}: {error.strerror}") from None
    write(folder, unfinished_document("the storms have not ended", seed=seed))


def write(folder: Path, document: Mapping[str, Any]) -> None:
    """Write ``storm.json``.

    Raises:
        FolderError: the folder cannot be written.
    """
    write_files(folder, {FILE_NAME: json.dumps(document, indent=2, allow_nan=False) + "\n"})


def read(folder: Path) -> dict[str, Any]:
    """The report of a run in this folder, which there is from its beginning on."""
    document: dict[str, Any] = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    return document


def unfinished_document(why: str, *, seed: int) -> dict[str, Any]:
    """The report of a run that has not come to its end."""
    return {
        **error_document(why, seed=seed),
        "verdict": str(Verdict.INCOMPLETE),
        "line": f"INCOMPLETE: {why}",
        "incomplete_because": [why],
    }


def error_document(message: str, *, seed: int, details: str = "") -> dict[str, Any]:
    """The report of a run that could not be made."""
    return {
        "format": FORMAT,
        "verdict": str(Verdict.ERROR),
        "line": f"ERROR: {message}",
        "incomplete_because": [],
        "storms": [],
        "parameters": {"seed": seed},
        "versions": versions(),
        **({"details": details} if details else {}),
    }


def versions() -> dict[str, str]:
    """What took part."""
    return {
        "contract": CONTRACT_VERSION,
        "workflow-checkpoint": metadata.version("workflow-checkpoint"),
        "locust": metadata.version("locust"),
        "python": platform.python_version(),
    }
