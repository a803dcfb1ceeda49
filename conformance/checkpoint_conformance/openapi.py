"""OpenAPI documents of others: references followed, and where their operations are served.

Of one that is valid by OpenAPI 3.1 no more is taken for granted than that says. Whatever else it
holds is left for its validator to tell, and breaks nothing here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from checkpoint_conformance.client import Address
from checkpoint_model.vocabulary import OPENAPI_PATH, TOOL_PATH

REFERENCES_MAX: Final = 20
"""One after the other; a longer row goes in a circle."""
_METHODS: Final = ("get", "post")
_MISSING: Final = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """An operation of a document, its path item found whether it is a reference or not."""

    method: str
    """In capitals."""
    key: str
    """The path as the document has it."""
    places: tuple[str, ...]
    """Where that may be below the address that the target is checked by; the likeliest first."""
    described: Mapping[str, Any]

    @property
    def is_the_tool(self) -> bool:
        """Whether it is how the tool is called (WC-HTTP-1)."""
        return self.method == "POST" and TOOL_PATH in self.places


def point(document: dict[str, Any]) -> None:
    """Make each reference by an anchor one by a pointer.

    No library looks for anchors but in the schema that it was given, and that is not where those
    of a whole document are.
    """
    anchors = {
        part["$anchor"]: pointer
        for pointer, part in _parts(document)
        if isinstance(part.get("$anchor"), str)
    }
    for _, part in _parts(document):
        name = _reference(part).removeprefix("#")
        if name in anchors:
            part["$ref"] = anchors[name]


def unresolved(document: dict[str, Any]) -> Iterator[str]:
    """References to what is no part of the document, though they say so."""
    for _, part in _parts(document):
        reference = _reference(part)
        if reference.startswith("#") and _at(document, reference) is _MISSING:
            yield reference


def followed(document: dict[str, Any], part: Any) -> Any:
    """A part, or what it refers to in the end; None where that is no part of the document."""
    for _ in range(REFERENCES_MAX):
        reference = _reference(part)
        if not reference:
            return part
        found = _at(document, reference)
        part = None if found is _MISSING else found
    return None


def operations(document: dict[str, Any], address: Address) -> Iterator[Operation]:
    """Every GET and POST of a document that the target serves at its usual path.

    By its servers a path lies below whatever base path the deployment has in public. A proxy may
    take that away again, so the target may as well serve the path by itself.
    """
    for key, item in _members(document.get("paths")).items():
        if not key.startswith("/"):
            continue  # an extension
        found = _members(followed(document, item))
        for method in _METHODS:
            described = found.get(method)
            if not isinstance(described, dict):
                continue
            levels = (described, found, document)
            servers = next((of for level in levels if (of := level.get("servers"))), ())
            below = [_base_path(server, address) for server in _entries(servers)]
            places = (f"{base.removeprefix(address.base_path)}{key}" for base in below)
            yield Operation(
                method=method.upper(),
                key=key,
                places=tuple(dict.fromkeys((*places, key))),
                described=described,
            )


def _base_path(server: Any, address: Address) -> str:
    """The path of a server's URL, its variables at their defaults; none of what is no URL."""
    url = str(_members(server).get("url"))
    variables = _members(server.get("variables"))

    def default(match: re.Match[str]) -> str:
        return str(_members(variables.get(match[1])).get("default", ""))

    try:
        whole = urljoin(address.url + OPENAPI_PATH, re.sub(r"\{([^{}]*)\}", default, url))
        return urlsplit(whole).path.rstrip("/")
    except ValueError:
        return ""


def _parts(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in a document, each with the pointer to it."""
    left: list[tuple[str, Any]] = [("#", document)]
    while left:
        pointer, part = left.pop()
        if isinstance(part, dict):
            yield pointer, part
            for name, value in part.items():
                step = quote(name.replace("~", "~0").replace("/", "~1"), errors="replace")
                left.append((f"{pointer}/{step}", value))
        elif isinstance(part, list):
            left += [(f"{pointer}/{number}", value) for number, value in enumerate(part)]


def _at(document: dict[str, Any], reference: str) -> Any:
    """What a pointer points at in the document; what is elsewhere is not ours to fetch."""
    pointer = unquote(reference)
    if pointer == "#":
        return document
    if not pointer.startswith("#/"):
        return _MISSING
    part: Any = document
    for escaped in pointer[2:].split("/"):
        step = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(part, dict) and step in part:
            part = part[step]
        elif isinstance(part, list) and step.isascii() and step.isdigit() and int(step) < len(part):
            part = part[int(step)]
        else:
            return _MISSING
    return part


def _reference(part: Any) -> str:
    """The reference that a part is; empty where it is none."""
    reference = part.get("$ref") if isinstance(part, dict) else None
    return reference if isinstance(reference, str) else ""


def _members(part: Any) -> Mapping[str, Any]:
    return part if isinstance(part, dict) else {}


def _entries(part: Any) -> list[Any]:
    return part if isinstance(part, list) else []
