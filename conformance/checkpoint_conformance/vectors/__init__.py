"""Test vectors: single decisions of the contract with what leads to them, as data.

``vectors.jsonl`` needs none of our code: the first line says what it is, and every other line is
one vector. ``vectors.schema.json`` describes both, ``docs/vectors.md`` tells how to use them.
They are produced from the model (:mod:`checkpoint_conformance.vectors.produce`) and committed;
a test holds the file to what the model produces.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

FORMAT: Final = 1
"""The version of the files' shape."""
FILE_NAME: Final = "vectors.jsonl"
SCHEMA_NAME: Final = "vectors.schema.json"
TIMES: Final = ("observed_at", "claim_expires_at", "state_expires_at")
"""The members of an answer that are times: in a vector, milliseconds after its start."""


class VectorError(ValueError):
    """The text is no file of vectors; the message names the line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """A request, and when it is sent: milliseconds after the vector's start."""

    at_ms: int
    request: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Vector:
    """One decision: what was sent before it, what is sent, and what must come."""

    id: str
    """Made of the deciding rule and of what is sent; it stays as long as they do."""
    rules: tuple[str, ...]
    """The decision row first, then the rules of the graph that bear on it."""
    given: tuple[Timed, ...]
    at_ms: int
    request: dict[str, Any]
    http_status: int
    members: dict[str, Any]
    """What the answer must have: of a result all but ``workflow_hash``, of a problem all that
    section 8 decides. The times of ``TIMES`` are milliseconds after the start."""

    @property
    def takes_time(self) -> bool:
        """Whether time passes in it, so that it takes controls to send it."""
        return self.at_ms > 0 or any(timed.at_ms > 0 for timed in self.given)


def read_vectors(text: str) -> list[Vector]:
    """Read a file of vectors.

    Raises:
        VectorError: a line is not what the format says.
    """
    vectors = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            entry = json.loads(line)
            if number == 1:
                _known_format(entry)
            else:
                vectors.append(_vector(entry))
        except VectorError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise VectorError(f"line {number}: {type(error).__name__}: {error}") from None
    return vectors


def _known_format(head: Mapping[str, Any]) -> None:
    if head["format"] != FORMAT:
        raise VectorError(f"line 1: format {head['format']}, expected {FORMAT}")


def load_vectors() -> list[Vector]:
    """The vectors that come with the harness."""
    text = resources.files(__name__).joinpath(FILE_NAME).read_text(encoding="utf-8")
    return read_vectors(text)


def write_vectors(vectors: Iterable[Vector], *, contract: str) -> str:
    """The text of a file of vectors; the inverse of :func:`read_vectors`."""
    vectors = list(vectors)
    head = {"format": FORMAT, "contract": contract, "vectors": len(vectors)}
    lines = [head, *(_entry(vector) for vector in vectors)]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def _vector(entry: Mapping[str, Any]) -> Vector:
    return Vector(
        id=entry["id"],
        rules=tuple(entry["rules"]),
        given=tuple(Timed(at_ms=g["at_ms"], request=g["request"]) for g in entry["given"]),
        at_ms=entry["at_ms"],
        request=entry["request"],
        http_status=entry["expected"]["http_status"],
        members=entry["expected"]["members"],
    )


def _entry(vector: Vector) -> dict[str, Any]:
    return {
        "id": vector.id,
        "rules": list(vector.rules),
        "given": [{"at_ms": timed.at_ms, "request": timed.request} for timed in vector.given],
        "at_ms": vector.at_ms,
        "request": vector.request,
        "expected": {"http_status": vector.http_status, "members": vector.members},
    }
