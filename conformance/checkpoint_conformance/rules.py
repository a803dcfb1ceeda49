"""The contract's rules as data (``rules.yaml``): what each says and what testing it takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final


class RuleClass(StrEnum):
    """The conformance classes of the contract's first page."""

    CORE = "core"
    MCP = "mcp"
    DESCRIPTIONS = "descriptions"
    CONTROLS = "controls"


class Binding(StrEnum):
    """The ways to call the tool (sections 11 and 12)."""

    HTTP = "http"
    MCP = "mcp"


class Access(StrEnum):
    """What testing a rule takes."""

    BLACK_BOX = "black-box"
    CONTROLS = "controls"
    STORE = "store"
    FAULTS = "faults"
    INSPECTION = "inspection"


SECTIONS: Final[Mapping[int, str]] = MappingProxyType(
    {
        3: "Requests",
        4: "Identity and digests",
        5: "Time",
        6: "Decisions",
        7: "The result",
        8: "Errors",
        9: "Idempotency and concurrency",
        10: "Privacy and retention",
        11: "HTTP binding",
        12: "MCP binding",
        13: "Published descriptions",
        14: "Test controls",
    }
)
"""The titles of the contract's sections that have rules."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule of the contract."""

    id: str
    text: str
    """Verbatim; of a decision table *when → outcome*."""
    section: int
    rule_class: RuleClass
    access: Access
    bindings: tuple[Binding, ...]
    """Over which it is tested, where the target has them."""
    floor: int | None
    """How often a run must exercise it before it counts as passed; None: no check yet."""
    breaks: str
    """What usually breaks it, in our words; empty where nothing is known."""


@cache
def rules() -> Mapping[str, Rule]:
    """Every rule by its id, in the contract's order."""
    import yaml

    text = resources.files(__package__).joinpath("rules.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader, the fast one if built
    return MappingProxyType(
        {
            rule_id: Rule(
                id=rule_id,
                text=entry["text"],
                section=entry["section"],
                rule_class=RuleClass(entry["class"]),
                access=Access(entry["access"]),
                bindings=tuple(map(Binding, entry["bindings"])),
                floor=entry.get("floor"),
                breaks=entry.get("breaks", ""),
            )
            for rule_id, entry in entries.items()
        }
    )
