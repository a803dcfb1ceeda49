"""Keyed digests: the only form in which identifiers travel on to the store (section 4).

Each digest is an HMAC-SHA256 over a domain name and length-prefixed parts. The domain keeps
kinds apart (WC-ID-4); the lengths keep ``("a", "bc")`` and ``("ab", "c")`` apart (WC-ID-3);
those of holder, observation and body are computed over the workflow's digest, so that nothing
stored links two workflows.
"""

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256

from checkpoint_model.vocabulary import HMAC_KEY_BYTES_MIN, WORKFLOW_HASH_PREFIX


class Digests:
    """Everything that is derived from the server's key."""

    def __init__(self, key: bytes) -> None:
        """Keep the key.

        Raises:
            ValueError: the key is shorter than WC-ID-5 allows.
        """
        if len(key) < HMAC_KEY_BYTES_MIN:
            raise ValueError(
                f"the HMAC key has {len(key)} bytes; it needs at least {HMAC_KEY_BYTES_MIN}"
            )
        # The key schedule is done here once; each digest starts from a copy of it.
        self._keyed = hmac.new(key, digestmod=sha256)

    def workflow(self, namespace: str, workflow_key: str, account: str | None = None) -> "Workflow":
        """The digests of one workflow identity; the account is part of it where there is one."""
        parts = (namespace.encode(), workflow_key.encode())
        if account is None:
            return Workflow(self, self._digest(b"workflow", *parts))
        # A domain of its own: where tokens are turned on, nobody's account finds the records of
        # before, as if they were its own.
        return Workflow(self, self._digest(b"workflow of account", account.encode(), *parts))

    def limited(self, kind: str, name: str) -> str:
        """What stands in the store for an account, or an address, whose requests are counted."""
        return _text(self._digest(b"limited", kind.encode(), name.encode()))

    @property
    def fingerprint(self) -> str:
        """What tells this key from another, and tells nothing of it."""
        return _text(self._digest(b"fingerprint"))

    def _digest(self, domain: bytes, *parts: bytes) -> bytes:
        message = b""  # whole before it is digested, which takes less than to digest the parts
        for part in (domain, *parts):
            message += len(part).to_bytes(4) + part
        mac = self._keyed.copy()
        mac.update(message)
        return mac.digest()


class Workflow:
    """The digests bound to one workflow identity."""

    __slots__ = ("_digest", "_digests")

    def __init__(self, digests: Digests, digest: bytes) -> None:
        self._digests = digests
        self._digest = digest

    @property
    def workflow_hash(self) -> str:
        """WC-ID-1: what callers are shown."""
        return WORKFLOW_HASH_PREFIX + self._digest.hex()

    @property
    def key(self) -> str:
        """What names the record in the store."""
        return _text(self._digest)

    def holder(self, holder: str) -> str:
        """The digest of a holder within this workflow."""
        return self._bound(b"holder", holder)

    def observation(self, observation_key: str) -> str:
        """The digest of an observation key within this workflow."""
        return self._bound(b"observation", observation_key)

    def body(
        self,
        holder: str,
        generation: int,
        to_stage: str,
        evidence_type: str | None,
        evidence_fingerprint: str | None,
    ) -> str:
        """The digest of a transition body (section 6); an absent member counts as absent."""
        parts = (holder, str(generation), to_stage, evidence_type, evidence_fingerprint)
        # No member may be empty, so the empty text can stand for an absent one.
        return self._bound(b"body", *(part or "" for part in parts))

    def _bound(self, domain: bytes, *parts: str) -> str:
        return _text(
            self._digests._digest(domain, self._digest, *map(str.encode, parts))  # noqa: SLF001
        )


def _text(digest: bytes) -> str:
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
