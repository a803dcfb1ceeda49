"""Bodies of requests to draw and to damage: good ones, nearly good ones, and junk."""

from typing import Any

from hypothesis import strategies as st

from checkpoint_model import Action, EvidenceType, Stage, schemas

DOCUMENT = schemas.load("request.schema.json")
MEMBERS = sorted({m for b in DOCUMENT["oneOf"] for m in b["properties"]})
REQUIRED = {b["title"]: b["required"] for b in DOCUMENT["oneOf"]}

CLAIM: dict[str, Any] = {
    "action": "claim",
    "namespace": "shop/orders",
    "workflow_key": "w_0123456789abcdef",
    "holder": "h_0123456789abcdef",
    "claim_ttl_seconds": 60,
    "state_ttl_seconds": 600,
    "retry_failed": False,
}
TRANSITION: dict[str, Any] = {
    **{name: CLAIM[name] for name in ("namespace", "workflow_key", "holder")},
    "action": "transition",
    "generation": 1,
    "to_stage": "failed",
    "observation_key": "o_0123456789abcdef",
    "evidence_type": "external_absence",
    "evidence_fingerprint": "sha256:" + "0f" * 32,
}
STATUS = {name: CLAIM[name] for name in ("namespace", "workflow_key")} | {"action": "status"}
ABANDON = {n: TRANSITION[n] for n in ("namespace", "workflow_key", "holder", "generation")}
ABANDON |= {"action": "abandon"}
GOOD = {"claim": CLAIM, "transition": TRANSITION, "status": STATUS, "abandon": ABANDON}


def key(prefix: str) -> st.SearchStrategy[str]:
    """Texts around the bounds of the opaque keys, some beyond them."""
    return st.from_regex(f"{prefix}_[A-Za-z0-9_-]{{15,65}}", fullmatch=True)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "action": st.sampled_from(Action).map(str),
    "namespace": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,128}", fullmatch=True),
    "workflow_key": key("w"),
    "holder": key("h"),
    "observation_key": key("o"),
    "claim_ttl_seconds": st.integers(1, 901),
    "state_ttl_seconds": st.integers(1, 3601),
    "retry_failed": st.booleans(),
    "generation": st.integers(0, 17),
    "to_stage": st.sampled_from(Stage).map(str),
    "evidence_type": st.sampled_from(EvidenceType).map(str),
    "evidence_fingerprint": st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True),
}
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 4000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["", "claim", "120", "w_0123456789abcdef\n", "h_0123456789abcdéf", "a\0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def nearly_requests(draw: st.DrawFn) -> dict[str, Any]:
    """A request of some action, in half of the cases with up to two things wrong."""
    action = draw(st.sampled_from(list(REQUIRED)))
    optional = sorted(GOOD[action].keys() - set(REQUIRED[action]))
    some = draw(st.lists(st.sampled_from(optional), unique=True)) if optional else []
    request = {name: draw(VALUES[name]) for name in [*REQUIRED[action], *some]}
    request["action"] = action
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        match draw(st.sampled_from(["value", "missing", "foreign", "unknown"])):
            case "value":
                request[draw(st.sampled_from(sorted(request) or ["action"]))] = draw(JUNK)
            case "missing":
                request.pop(draw(st.sampled_from(sorted(request) or ["action"])), None)
            case "foreign":
                name = draw(st.sampled_from(MEMBERS))
                request[name] = draw(VALUES[name])
            case "unknown":
                request[draw(st.text(max_size=12))] = draw(JUNK)
    return request
