"""A sample of what ``nox -s fuzz`` does a hundred thousand times, and that it would notice."""

import json

import pytest
from fuzzing import KINDS, MARK, NOT_IMPLEMENTED, Findings, Input, fuzz, judge, make

from checkpoint_model.vocabulary import ErrorCode
from checkpoint_reference_server import answers

SAMPLE = 1200


def test_bad_inputs_break_nothing_and_come_back_nowhere() -> None:
    """WC-PRIV-1, WC-ERR-9: no crash, no fault, no leak, no growth."""
    findings = fuzz(SAMPLE, seed=8)
    assert findings.wrong == []
    assert findings.inputs == dict.fromkeys(KINDS, SAMPLE // len(KINDS))
    # It is bad in many ways, and not in all of them: some of it is decided.
    statuses = {"200", "400", "404", "405", "413", "415", "421", "431", "501"}
    assert statuses <= findings.statuses.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_can_be_made_again(kind: str) -> None:
    """By its seed, kind and number alone; another number makes another."""
    made = [make(kind, 5, number) for number in range(50)]
    assert [make(kind, 5, number) for number in range(50)] == made
    assert len({given.wire for given in made}) > 40
    assert make(kind, 6, 0) != made[0]
    assert sum(given.mark.encode() in given.wire for given in made) > 25
    assert all(given.mark.startswith(MARK) for given in made)


HEAD = b"HTTP/1.1 %d X\r\ncontent-type: application/problem+json\r\n\r\n"
PROBLEM = json.dumps(answers.problem(ErrorCode.INVALID_INPUT)).encode()


@pytest.mark.parametrize(
    ("came", "wrong"),
    [
        (HEAD % 400 + PROBLEM, None),
        (b"", None),
        (NOT_IMPLEMENTED + b"\r\n", None),
        (NOT_IMPLEMENTED + b"\r\n" + HEAD % 500, "status 501"),
        (HEAD % 500, "status 500"),
        (HEAD % 503 + PROBLEM, "status 503"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 X\r\n\r\n", "status 100"),
        (HEAD % 400 + PROBLEM.replace(b'"retry"', b'"again"'), "no problem object"),
        (b"HTTP/1.1 404 X\r\nx: ZQFUZZMARK\r\n\r\n", "what was sent is in the answer"),
        (b"Traceback", "no HTTP"),
    ],
)
def test_a_wrong_answer_is_noticed(came: bytes, wrong: str | None) -> None:
    """Each of what is held of every answer."""
    findings = Findings()
    judge(findings, "1/json/1", Input(b"", "zqfuzzmark"), came)
    if wrong is None:
        assert findings.wrong == []
    else:
        (said,) = findings.wrong
        assert wrong in said
