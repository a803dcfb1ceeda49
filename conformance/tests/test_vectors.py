"""The committed vectors are what the model produces, and cover what they say."""

import json
from importlib import resources
from itertools import product

import jsonschema
import pytest

from checkpoint_conformance.vectors import (
    FILE_NAME,
    SCHEMA_NAME,
    VectorError,
    load_vectors,
    read_vectors,
    write_vectors,
)
from checkpoint_conformance.vectors.produce import produce
from checkpoint_model import CONTRACT_VERSION, MOVES, EvidenceType, Stage, schemas
from checkpoint_model.invariants import DECISION_ROWS

FOLDER = resources.files("checkpoint_conformance.vectors")
TEXT = FOLDER.joinpath(FILE_NAME).read_text(encoding="utf-8")


def test_the_committed_file_is_what_the_model_produces() -> None:
    """To be written anew: python -m checkpoint_conformance.vectors.produce."""
    assert write_vectors(produce(), contract=CONTRACT_VERSION) == TEXT


def test_every_line_matches_the_schema() -> None:
    """By a validator that is not ours; the requests by the contract's own schema."""
    schema = json.loads(FOLDER.joinpath(SCHEMA_NAME).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    of_lines = jsonschema.Draft202012Validator(schema)
    of_requests = jsonschema.Draft202012Validator(schemas.load("request.schema.json"))
    head, *lines = map(json.loads, TEXT.splitlines())
    assert head == {"format": 1, "contract": CONTRACT_VERSION, "vectors": len(lines)}
    for line in (head, *lines):
        of_lines.validate(line)
    for line in lines:
        for sent in (*line["given"], line):
            of_requests.validate(sent["request"])


def test_every_decision_row_is_covered() -> None:
    """At least three ways each."""
    rows = [vector.rules[0] for vector in load_vectors()]
    assert {row: rows.count(row) >= 3 for row in DECISION_ROWS} == dict.fromkeys(
        DECISION_ROWS, True
    )


def test_every_cell_of_graph_and_evidence_is_covered() -> None:
    """From each stage that can be left, to each stage, with each evidence, printed or not."""
    seen = set()
    for vector in load_vectors():
        if vector.rules[0] not in ("WC-TRANS-7", "WC-TRANS-8"):
            continue
        sent = vector.request
        moved = any(g.request.get("to_stage") == "uncertain" for g in vector.given)
        recovered = any(g.request["action"] == "abandon" for g in vector.given) or (
            [g.request["action"] for g in vector.given].count("claim") > 1
        )
        source = "uncertain" if moved or recovered else "claimed"
        evidence = sent.get("evidence_type")
        seen.add((source, sent["to_stage"], evidence, "evidence_fingerprint" in sent))
    evidences = [(None, False), *product(map(str, EvidenceType), (False, True))]
    targets = [str(stage) for stage in Stage if stage is not Stage.CLAIMED]
    expected = {
        (str(source), target, evidence, printed)
        for source, target, (evidence, printed) in product(
            [stage for stage, moves in MOVES.items() if moves], targets, evidences
        )
    }
    assert seen == expected


@pytest.mark.parametrize("offset_ms", [-1, 0, 1])
def test_both_deadlines_are_covered(offset_ms: int) -> None:
    """A millisecond before, at, and after; by every action that looks at the deadline."""
    claim, state = set(), set()
    for vector in load_vectors():
        ttl = next((g.request for g in vector.given if g.request["action"] == "claim"), None)
        if ttl is None:
            continue
        claimed_at = next(g.at_ms for g in vector.given if g.request["action"] == "claim")
        after_ms = vector.at_ms - claimed_at
        if after_ms == ttl["claim_ttl_seconds"] * 1000 + offset_ms:
            claim.add(vector.request["action"])
        if after_ms == ttl["state_ttl_seconds"] * 1000 + offset_ms:
            state.add(vector.request["action"])
    every = {"claim", "transition", "abandon", "status"}
    assert (claim, state) == (every, every)


def test_ids_are_unique_and_begin_with_the_row() -> None:
    """So that a list of known failures can use them."""
    vectors = load_vectors()
    assert len({vector.id for vector in vectors}) == len(vectors)
    assert all(vector.id.startswith(vector.rules[0] + "-") for vector in vectors)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "line 1"),
        ('{"format":2}', "line 1: format 2, expected 1"),
        ('{"format":1}\n{"id":"x"}', "line 2: KeyError: 'rules'"),
        ('{"format":1}\n{', "line 2: JSONDecodeError"),
    ],
)
def test_a_file_that_is_none_names_its_line(text: str, said: str) -> None:
    """Whoever made the file learns where to look."""
    with pytest.raises(VectorError, match=said):
        read_vectors(text)
