"""The examples of the published descriptions: what was sent, and what the model answered.

The model produced them; see ``registry_examples.py`` among the tests. ``response`` has the
members that the contract decides, and no free wording.
"""

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

FILE_NAME: Final = "examples.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One request after some others, and the members that its answer has."""

    name: str
    given: list[dict[str, Any]]
    request: dict[str, Any]
    response: dict[str, Any]

    @property
    def code(self) -> str | None:
        """The error code of the answer, if it is an error."""
        return self.response.get("code")


def load_examples() -> tuple[Example, ...]:
    """All of them; each call gives copies of its own."""
    text = resources.files(__package__).joinpath(FILE_NAME).read_text(encoding="utf-8")
    return tuple(Example(**example) for example in json.loads(text))
