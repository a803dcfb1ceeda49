"""Keyed digests: the only form in which identifiers travel on to the store (section 4).

Each digest is an HMAC-SHA256 over a domain name and length-prefixed parts. The domain keeps
kinds apart (WC-ID-4); the lengths keep ``("a", "bc")`` and ``("ab", "c")`` apart (WC-ID-3);
those of holder, observation and body are computed over the workflow's digest, so that nothing
stored links two workflows.
"""

import hmac
from binascii import b2a_base64
from hashlib import sha256
from typing import Final

from checkpoint_model.vocabulary import HMAC_KEY_BYTES_MIN, WORKFLOW_HASH_PREFIX

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def _framed(part: str | bytes) -> bytes:
    """A part of a message behind its length."""
    data = part.encode() if isinstance(part, str) else part
    return len(data).to_bytes(4) + data


_WORKFLOW: Final = _framed("workflow")
_ACCOUNTS_WORKFLOW: Final = _framed("workflow of account")
_LIMITED: Final = _framed("limited")
_FINGERPRINT: Final = _framed("fingerprint")
_HOLDER: Final = _framed("holder")
_OBSERVATION: Final = _framed("observation")
_BODY: Final = _framed("body")


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
        identity = _framed(namespace) + _framed(workflow_key)
        if account is None:
            return Workflow(self, self._digest(_WORKFLOW + identity))
        # A domain of its own: where tokens are turned on, nobody's account finds the records of
        # before, as if they were its own.
        return Workflow(self, self._digest(_ACCOUNTS_WORKFLOW + _framed(account) + identity))

    def limited(self, kind: str, name: str) -> str:
        """What stands in the store for an account, or an address, whose requests are counted."""
        return _text(self._digest(_LIMITED + _framed(kind) + _framed(name)))

    @property
    def fingerprint(self) -> str:
        """What tells this key from another, and tells nothing of it."""
        return _text(self._digest(_FINGERPRINT))

    def _digest(self, message: bytes) -> bytes:
        mac = self._keyed.copy()
        mac.update(message)
        return mac.digest()


class Workflow:
    """The digests bound to one workflow identity."""

    __slots__ = ("_bound_to", "_digest", "_digests")

    def __init__(self, digests: Digests, digest: bytes) -> None:
        self._digests = digests
        self._digest = digest
        self._bound_to = _framed(digest)

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
        return self._bound(_HOLDER, _framed(holder))

    def observation(self, observation_key: str) -> str:
        """The digest of an observation key within this workflow."""
        return self._bound(_OBSERVATION, _framed(observation_key))

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
        return self._bound(_BODY, b"".join(_framed(part or "") for part in parts))

    def _bound(self, domain: bytes, parts: bytes) -> str:
        message = domain + self._bound_to + parts
        return _text(self._digests._digest(message))  # noqa: SLF001


def _text(digest: bytes) -> str:
    return b2a_base64(digest, newline=False).translate(_URL_SAFE, b"=").decode()
