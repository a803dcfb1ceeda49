"""Model and scripts agree on every step of a world, and a change of one character is found."""

from collections.abc import Iterator

import pytest
import redis
from differential import ALL_CELLS, Covered, differences

from checkpoint_lua import scripts
from checkpoint_model.invariants import DECISION_ROWS
from checkpoint_model.worlds import WORLDS

PARTS = 2
"""The states are shared out, so that two processors can go through them."""
PAIRS = (340_970, 356_447)
"""Of each part: what changes with the machine or the world, and with nothing else."""


@pytest.fixture(scope="module")
def client(valkey_url: str) -> Iterator["redis.Redis"]:
    """A client of the store of this test process."""
    with redis.Redis.from_url(valkey_url, decode_responses=True) as client:
        yield client


@pytest.mark.parametrize("part", range(PARTS))
def test_model_and_scripts_agree_on_every_step(client: "redis.Redis", part: int) -> None:
    """Answer and stored record, for every request in every state of the differential world."""
    covered = Covered()
    found = differences(client, WORLDS["differential"], covered, part=part, parts=PARTS)
    assert next(map(str, found), "no difference") == "no difference"
    assert covered.pairs == PAIRS[part]
    assert covered.rows == set(DECISION_ROWS)
    assert covered.cells == ALL_CELLS


@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", ["everything", "observations", "three"])
def test_they_agree_in_the_large_worlds_too(client: "redis.Redis", name: str, part: int) -> None:
    """The worlds that take minutes."""
    found = differences(client, WORLDS[name], Covered(), part=part, parts=PARTS)
    assert next(map(str, found), "no difference") == "no difference"


CHANGES = [
    ("claim", "now_ms >= record.state_end_ms", "now_ms > record.state_end_ms"),
    ("claim", "now_ms < record.claim_end_ms", "now_ms <= record.claim_end_ms"),
    ("claim", "local GENERATIONS_MAX = 16", "local GENERATIONS_MAX = 17"),
    ("claim", "record.generation + 1", "record.generation + 2"),
    ("claim", "\n  'abandoned', '0'", "\n  'abandoned', '1'"),
    ("transition", "~= record.generation", "== record.generation"),
    ("transition", "applied_body == body", "applied_body ~= body"),
    ("abandon", "record.abandoned == '1'", "record.abandoned == '0'"),
]


@pytest.mark.parametrize(("action", "old", "new"), CHANGES)
def test_one_changed_character_is_found(
    client: "redis.Redis", action: str, old: str, new: str
) -> None:
    """The differential can fail: each of these single-character faults shows in some step."""
    text = scripts()[action].text
    assert text.count(old) == 1
    assert len(old) == len(new) or abs(len(old) - len(new)) == 1
    wrong = {action: text.replace(old, new)}
    found = differences(client, WORLDS["cells"], Covered(), texts=wrong)
    assert next(found, None) is not None
