"""Section 4 as laws: what a digest depends on, and what keeps two of them apart."""

import hmac
import re
from base64 import urlsafe_b64encode
from hashlib import sha256

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from checkpoint_model import EvidenceType, Stage
from checkpoint_reference_server.digests import Digests, Workflow

KEY = b"0123456789abcdef0123456789abcdef"
NAMESPACE, WORKFLOW_KEY = "shop/orders", "w_0123456789abcdef"
HOLDER, OBSERVATION = "h_0123456789abcdef", "o_0123456789abcdef"
DIGESTS = Digests(KEY)
TEXTS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
BODIES = st.tuples(
    TEXTS,
    st.integers(1, 16),
    st.sampled_from(Stage).map(str),
    st.none() | st.sampled_from(EvidenceType).map(str),
    st.none() | TEXTS,
)


def independently(key: bytes, domain: str, *parts: bytes) -> bytes:
    """HMAC-SHA256 over the domain and the parts, each after its length in four bytes."""
    text = b"".join(len(p).to_bytes(4, "big") + p for p in (domain.encode(), *parts))
    return hmac.new(key, text, "sha256").digest()


def short(digest: bytes) -> str:
    """As it lies in the store: URL-safe base64 without padding."""
    return urlsafe_b64encode(digest).decode().rstrip("=")


def workflow() -> Workflow:
    """One workflow's digests."""
    return DIGESTS.workflow(NAMESPACE, WORKFLOW_KEY)


def test_the_vectors_that_never_change() -> None:
    """From HMAC's definition (RFC 2104): with other ones every live record is unreachable."""
    one = workflow()
    assert (
        one.workflow_hash
        == "hmac-sha256:93e51e4a91b458eb8949e835e52a149b9d41b431b10e704b947793b549d97f55"
    )
    assert one.key == "k-UeSpG0WOuJSeg15SoUm51BtDGxDnBLlHeTtUnZf1U"
    assert one.holder(HOLDER) == "B_PX9ELfkzGZP6daKePnPObfrPb5eHndlsnHA13NUME"
    assert one.observation(OBSERVATION) == "gucg9YuUL2unV3ycetW4Qv9WPe_keMxbya0W75yAn-U"
    assert (
        one.body(HOLDER, 1, "uncertain", None, None)
        == "xydv9CaA5HAm54Yiky4HenGjGaim3Rj1pQoVHHYk6y4"
    )


@given(TEXTS, TEXTS, TEXTS, BODIES, st.binary(min_size=32, max_size=100))
def test_every_digest_is_an_hmac_of_domain_and_parts(
    namespace: str,
    workflow_key: str,
    text: str,
    body: tuple[str, int, str, str | None, str | None],
    key: bytes,
) -> None:
    """WC-ID-1, WC-ID-4: computed again here, from the description alone."""
    one = Digests(key).workflow(namespace, workflow_key)
    own = independently(key, "workflow", namespace.encode(), workflow_key.encode())
    parts = ["" if part is None else str(part) for part in body]
    assert one.workflow_hash == f"hmac-sha256:{own.hex()}"
    assert one.key == short(own)
    assert one.holder(text) == short(independently(key, "holder", own, text.encode()))
    assert one.observation(text) == short(independently(key, "observation", own, text.encode()))
    assert one.body(*body) == short(
        independently(key, "body", own, *(part.encode() for part in parts))
    )


def test_the_workflow_hash_has_its_form() -> None:
    """WC-ID-1."""
    assert re.fullmatch(r"hmac-sha256:[0-9a-f]{64}", workflow().workflow_hash)


def test_the_same_identity_has_the_same_hash() -> None:
    """WC-ID-2: in another process too, as long as the key is the same."""
    again = Digests(bytes(KEY)).workflow(NAMESPACE, WORKFLOW_KEY)
    assert again.workflow_hash == workflow().workflow_hash


@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
def test_different_identities_have_different_hashes(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    """WC-ID-3."""
    assume(one != other)
    assert DIGESTS.workflow(*one).workflow_hash != DIGESTS.workflow(*other).workflow_hash


@given(TEXTS, st.data())
def test_where_namespace_ends_and_key_begins_matters(text: str, data: st.DataObject) -> None:
    """WC-ID-3: identities that concatenate to the same text are different ones."""
    cuts = st.integers(0, len(text))
    one, other = data.draw(cuts), data.draw(cuts)
    assume(one != other)
    hashes = {DIGESTS.workflow(text[:n], text[n:]).workflow_hash for n in (one, other)}
    assert len(hashes) == 2


@given(TEXTS)
def test_kinds_are_apart(text: str) -> None:
    """WC-ID-4: the same text as holder, as observation key and in a body."""
    one = workflow()
    digests = {one.holder(text), one.observation(text), one.body(text, 1, "failed", None, None)}
    assert len(digests) == 3
    assert one.key not in digests


@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS), TEXTS, BODIES)
def test_nothing_links_two_workflows(
    one: tuple[str, str],
    other: tuple[str, str],
    text: str,
    body: tuple[str, int, str, str | None, str | None],
) -> None:
    """WC-ID-4: one holder, observation or body has another digest in another workflow."""
    assume(one != other)
    first, second = DIGESTS.workflow(*one), DIGESTS.workflow(*other)
    assert first.holder(text) != second.holder(text)
    assert first.observation(text) != second.observation(text)
    assert first.body(*body) != second.body(*body)


@given(BODIES, BODIES)
def test_every_member_of_the_body_matters(
    one: tuple[str, int, str, str | None, str | None],
    other: tuple[str, int, str, str | None, str | None],
) -> None:
    """Section 6: an absent member is part of the body as absent."""
    assert (workflow().body(*one) == workflow().body(*other)) is (one == other)


def test_the_key_matters() -> None:
    """WC-ID-2: without it nobody can compute the digest of a guessed identity."""
    other = Digests(KEY[:-1] + b"F").workflow(NAMESPACE, WORKFLOW_KEY)
    assert other.workflow_hash != workflow().workflow_hash
    assert sha256(WORKFLOW_KEY.encode()).hexdigest() not in workflow().workflow_hash


@pytest.mark.parametrize("length", [0, 1, 31])
def test_a_short_key_is_refused(length: int) -> None:
    """WC-ID-5; the message does not show it."""
    with pytest.raises(ValueError, match=f"has {length} bytes; it needs at least 32") as refused:
        Digests(b"\xa7" * length)
    assert "\\xa7" not in str(refused.value)


@pytest.mark.parametrize("length", [32, 33, 64, 65, 4096])
def test_a_key_may_be_as_long_as_one_likes(length: int) -> None:
    """WC-ID-5; beyond 64 bytes HMAC hashes it first, and all of it still counts."""
    key = b"k" * length
    assert Digests(key).workflow(NAMESPACE, WORKFLOW_KEY).key == short(
        independently(key, "workflow", NAMESPACE.encode(), WORKFLOW_KEY.encode())
    )
    assert Digests(key + b"k").workflow("n", "w").key != Digests(key).workflow("n", "w").key
