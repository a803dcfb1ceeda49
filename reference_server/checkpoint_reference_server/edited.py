"""``python -m checkpoint_reference_server.edited EDITS …``: a wrong server, to test tests with.

It is ``serve``, with the options that follow, but that the Lua scripts are changed as the file
EDITS says: a JSON array of ``{"action": …, "old": …, "new": …}``. Each is applied to the script of
that action, or to every script that has ``old`` where ``action`` is empty, and ``old`` must be
there once. The file is looked at before each call of a script, so that one server can be one
mutant after the other; whoever changes it puts another in its place in one step.

Edits that do not fit end every request with an internal fault (500), never with an answer of the
unchanged scripts; and a file beside EDITS, with ``.unfit`` after its name, says which.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha1
from pathlib import Path
from typing import Final

from checkpoint_lua import Script, loader

_USAGE: Final = 2


class EditError(ValueError):
    """A text to change is not there, or more than once."""


def edited(right: Mapping[str, Script], edits: list[dict[str, str]]) -> dict[str, Script]:
    """The scripts with edits applied, one after the other.

    Raises:
        EditError: an edit does not fit.
    """
    texts = {action: script.text for action, script in right.items()}
    for edit in edits:
        old = edit["old"]
        actions = [edit["action"]] if edit["action"] else [a for a in texts if old in texts[a]]
        if not actions or any(texts[action].count(old) != 1 for action in actions):
            raise EditError(f"not once in {edit['action'] or 'any script'}: {old}")
        for action in actions:
            texts[action] = texts[action].replace(old, edit["new"])
    return {
        action: Script(
            action=action, text=text, sha1=sha1(text.encode(), usedforsecurity=False).hexdigest()
        )
        for action, text in texts.items()
    }


class EditedScripts(Mapping[str, Script]):
    """The scripts as the file says now."""

    def __init__(self, right: Mapping[str, Script], path: Path) -> None:
        self._right = right
        self._path = path
        self._unfit = path.with_name(f"{path.name}.unfit")
        self._read: tuple[int, int] | None = None
        self._scripts: Mapping[str, Script] = {}

    def __getitem__(self, action: str) -> Script:
        """One script; raises :class:`EditError` where the edits do not fit."""
        return self._now()[action]

    def __iter__(self) -> Iterator[str]:
        """The actions."""
        return iter(self._right)

    def __len__(self) -> int:
        """How many actions there are."""
        return len(self._right)

    def _now(self) -> Mapping[str, Script]:
        status = self._path.stat()
        read = status.st_ino, status.st_mtime_ns
        if read != self._read:
            edits = json.loads(self._path.read_text(encoding="utf-8"))
            try:
                self._scripts = edited(self._right, edits)
            except EditError as error:
                self._unfit.write_text(str(error), encoding="utf-8")
                raise
            self._read = read
        return self._scripts


def main() -> None:
    """Serve with the scripts edited."""
    if len(sys.argv) == 1:
        print("which edits? Give a file first, then the options of serve", file=sys.stderr)  # noqa: T201
        sys.exit(_USAGE)
    from checkpoint_reference_server.commands import serve

    scripts = EditedScripts(loader.scripts(), Path(sys.argv.pop(1)))
    loader.scripts = lambda: scripts  # type: ignore[assignment]
    serve(prog_name="python -m checkpoint_reference_server.edited EDITS")


if __name__ == "__main__":
    main()
