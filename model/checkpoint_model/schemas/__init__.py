"""The contract's JSON documents, as package data.

``request.schema.json`` is section 3, ``result.schema.json`` section 7,
``problem.schema.json`` section 8; ``manifest.example.json`` shows the shape of section 13.
"""

import json
from importlib import resources
from typing import Any, Literal

Name = Literal[
    "request.schema.json", "result.schema.json", "problem.schema.json", "manifest.example.json"
]


def load(name: Name) -> dict[str, Any]:
    """Read one of the documents; each call gives a copy of its own."""
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
