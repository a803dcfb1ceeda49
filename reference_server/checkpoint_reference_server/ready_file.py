"""The file by which a program that was started tells, once it answers, where it is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def prepare(path: Path) -> None:
    """Remove what an earlier program wrote, and find out now whether it can be written.

    Raises:
        OSError: it cannot.
    """
    path.unlink(missing_ok=True)
    _partial(path).touch()
    _partial(path).unlink()


def write(path: Path, facts: Mapping[str, Any]) -> None:
    """Write the facts as one JSON object.

    Raises:
        OSError: that failed.
    """
    # Renamed into place, so that whoever waits for the file never reads half of it; and for its
    # owner alone, as a store's URL has the password in it.
    partial = _partial(path)
    partial.unlink(missing_ok=True)
    partial.touch(0o600, exist_ok=False)
    partial.write_text(json.dumps(facts), encoding="utf-8")
    partial.replace(path)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")
