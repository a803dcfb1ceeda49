"""The logs of an implementation, looked through for what a run sent (WC-PRIV-1).

A run sends some hundred thousand identifiers, too many to look for one by one in a log of any size.
So those that the harness makes up end alike: random digits, then one that tells the member, then
the mark of this run. One pattern finds them all, and needs no memory of any. Of the few that
are made otherwise (boundary cases, vectors) a bounded number is remembered.

Read are only bytes that were written since the run began, in pieces, so that a log may be long.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DIGITS_MIN: Final = 11
"""Random digits before the mark; a line that has so many of them has the identifier."""
_MEMBERS: Final[Mapping[str, str]] = {
    "a": "namespace",
    "b": "workflow_key",
    "c": "holder",
    "d": "observation_key",
    "e": "evidence_fingerprint",
}
_CODES: Final = {name: code for code, name in _MEMBERS.items()}
_OTHER: Final = "f"
_OTHERS: Final = re.compile(rb"[who]_[A-Za-z0-9_-]{16,64}|[0-9a-f]{64}")
"""What an identifier that was not made up here looks like; a namespace may look like anything."""
OTHERS_MAX: Final = 10_000
_MARK_BYTES: Final = 6
PIECE_BYTES: Final = 1 << 20
_OVERLAP: Final = 256
"""Longer than any identifier, so that one on the edge of two pieces is whole in the second."""
PLACES_MAX: Final = 20


class _Mark:
    """What every identifier that this process makes up ends with."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.made_up = re.compile(
            rb"[0-9a-f]{%d}([a-f])%s" % (_DIGITS_MIN, text.encode()), re.IGNORECASE
        )


_mark = _Mark(secrets.token_hex(_MARK_BYTES))


def mark() -> str:
    """The mark of this process."""
    return _mark.text


def share_mark(text: str) -> None:
    """Go by the mark of another process, which looks through the logs for both."""
    global _mark  # noqa: PLW0603 - whatever makes up an identifier has to go by it
    _mark = _Mark(text)


def digits(member: str, number: int) -> str:
    """So many lower-case hexadecimal digits that nobody has used, and that a log is known by."""
    made_up = number - len(_mark.text) - 1
    return secrets.token_hex((made_up + 1) // 2)[:made_up] + _CODES.get(member, _OTHER) + _mark.text


def is_made_up(text: str) -> bool:
    """Whether an identifier has the mark, and so need not be remembered."""
    # A JSON string may hold half a character, and a check may send one to see it refused.
    return _mark.made_up.search(text.encode("utf-8", "surrogatepass")) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a log shows an identifier."""

    path: Path
    line: int
    """From 1."""
    member: str
    """Its name; ``identifier`` where that cannot be told."""

    def __str__(self) -> str:
        """For people."""
        return f"the `{self.member}` of a request at {self.path.name}:{self.line}"


class Logs:
    """Log files, and where each was read up to."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.others: dict[str, str] = {}
        """Identifiers without the mark that were sent, with the names of their members."""
        self.places: list[Place] = []
        """Where identifiers were found, the first of them."""
        self.unreadable: dict[Path, str] = {}
        """Why one could not be read, where it could not."""
        self._positions = {path: _size(path) for path in paths}
        self.read_bytes = dict.fromkeys(self._positions, 0)
        """How much of each was looked through."""

    def anew(self) -> "Logs":
        """The same files, of which nothing that was written until now is looked through."""
        return Logs(self._positions)

    def know(self, text: str, member: str) -> None:
        """Look out for an identifier; of those that have no mark, for a bounded number."""
        if len(self.others) < OTHERS_MAX and not is_made_up(text):
            self.others.setdefault(text.removeprefix("sha256:"), member)

    def look(self) -> None:
        """Look through what was written since the last time."""
        for path in self._positions:
            try:
                self._look(path)
            except OSError as error:
                # One that was read already may be gone: a folder for the length of a run.
                if self.read_bytes[path] == 0:
                    self.unreadable[path] = error.strerror or type(error).__name__

    def _look(self, path: Path) -> None:
        with path.open("rb") as log:
            start = self._positions[path]
            if _size(path) < start:  # it was emptied, or another took its place
                start = 0
            self.unreadable.pop(path, None)
            log.seek(max(start - _OVERLAP, 0))
            at, before = log.tell(), b""
            while piece := log.read(PIECE_BYTES):
                text = before + piece
                for end, member in self._identifiers(text):
                    offset = at - len(before) + end
                    # What ends in the overlap was found the last time.
                    if offset > max(start, at) and len(self.places) < PLACES_MAX:
                        line = _line(path, offset)
                        self.places.append(Place(path=path, line=line, member=member))
                at += len(piece)
                before = text[-_OVERLAP:]
            self.read_bytes[path] += max(at - start, 0)
            self._positions[path] = at

    def _identifiers(self, text: bytes) -> list[tuple[int, str]]:
        """Where each identifier in a text ends, and its member."""
        found = [
            (match.end(), _MEMBERS.get(match[1].decode().lower(), "identifier"))
            for match in _mark.made_up.finditer(text)
        ]
        for match in _OTHERS.finditer(text):
            member = self.others.get(match[0].decode())
            if member is not None:
                found.append((match.end(), member))
        return sorted(found)


def _line(path: Path, offset: int) -> int:
    """The line, from 1, of the byte before an offset; only asked where something was found."""
    number, left = 1, offset - 1
    with path.open("rb") as log:
        while left > 0 and (piece := log.read(min(PIECE_BYTES, left))):
            number += piece.count(b"\n")
            left -= len(piece)
    return number


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
