"""The rules as data agree with the contract's text."""

import re
from pathlib import Path

from checkpoint_conformance.rules import Access, RuleClass, rules

CONTRACT = (Path(__file__).parents[2] / "model/CONTRACT.md").read_text(encoding="utf-8")


def _from_the_contract() -> dict[str, tuple[int, str]]:
    """Every rule's section and text, read from the contract's tables and lists."""
    found: dict[str, tuple[int, str]] = {}
    section, current = 0, None
    for line in CONTRACT.splitlines():
        if heading := re.match(r"## (\d+) ", line):
            section, current = int(heading[1]), None
        elif row := re.match(r"\| \*\*(WC-[A-Z]+-\d+)\*\*(?: ✎)? \| (.*) \| (.*) \|$", line):
            found[row[1]] = section, f"{row[2]} → {row[3]}"
            current = None
        elif item := re.match(r"- \*\*(WC-[A-Z]+-\d+)\*\* (.*)$", line):
            current = item[1]
            found[current] = section, item[2]
        elif current is not None and line.startswith("  "):
            found[current] = section, f"{found[current][1]} {line.strip()}"
        else:
            current = None
    return found


def test_the_registry_is_the_contract() -> None:
    """The same ids in the same order, with the same words."""
    assert {i: (rule.section, rule.text) for i, rule in rules().items()} == _from_the_contract()
    assert list(rules()) == list(_from_the_contract())
    assert len(rules()) == 92


def test_no_rule_of_the_contract_is_missed_by_the_reader() -> None:
    """Every id that the contract sets in bold is one of the registry's."""
    assert set(re.findall(r"\*\*(WC-[A-Z]+-\d+)\*\*", CONTRACT)) == set(rules())


def test_classes_follow_the_sections() -> None:
    """Core is sections 1 to 11; each of the others has a section of its own."""
    others = {12: RuleClass.MCP, 13: RuleClass.DESCRIPTIONS, 14: RuleClass.CONTROLS}
    for rule in rules().values():
        assert rule.rule_class is others.get(rule.section, RuleClass.CORE), rule.id


def test_what_only_inspection_can_tell_has_no_floor() -> None:
    """A rule without a test cannot be counted as passed."""
    for rule in rules().values():
        if rule.access is Access.INSPECTION:
            assert rule.floor is None, rule.id


def test_every_rule_that_a_check_names_exists() -> None:
    """No check counts a rule that the contract does not have."""
    package = Path(__file__).parents[1] / "checkpoint_conformance"
    named = {
        rule_id
        for path in package.rglob("*.py")
        for rule_id in re.findall(r"WC-[A-Z]+-\d+", path.read_text(encoding="utf-8"))
    }
    assert named - set(rules()) == set()


def test_every_rule_with_a_check_tells_what_usually_breaks_it() -> None:
    """`explain` has something to say to whoever meets it broken."""
    assert [rule.id for rule in rules().values() if rule.floor and not rule.breaks] == []
