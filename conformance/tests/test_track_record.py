"""The track record names mutants that there are, and its page is what it says."""

import re
from pathlib import Path

from checkpoint_conformance.mutants.recorded import RECORDED
from checkpoint_conformance.mutants.track_record import TRACK_RECORD, page
from checkpoint_conformance.mutants.zoo import ZOO

ROOT = Path(__file__).parents[2]


def test_each_fault_is_a_mutant_of_the_zoo() -> None:
    """Which the tests of the zoo see killed by its rules."""
    assert [one.mutant for one in TRACK_RECORD if one.mutant not in ZOO] == []
    assert [m.name for m in RECORDED if m.name not in {one.mutant for one in TRACK_RECORD}] == []


def test_each_is_told_in_one_sentence_of_one_place() -> None:
    """No fault is counted twice."""
    assert len(TRACK_RECORD) >= 15
    assert len({one.url for one in TRACK_RECORD}) == len(TRACK_RECORD)
    for one in TRACK_RECORD:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", one.project)
        assert re.fullmatch(r"[A-Z][^|\n.]*\.", one.what), one.what


def test_the_page_is_of_today_s_record() -> None:
    """To be written anew as the module says."""
    assert (ROOT / "docs/track-record.md").read_text(encoding="utf-8") == page()
