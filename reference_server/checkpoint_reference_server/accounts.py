"""Who calls: bearer tokens, each of an account, from a file that is read again when it changes.

One token a line, after the account that it stands for; ``#`` begins a comment line::

    # made by: openssl rand -hex 32
    billing   9f2c5d…
    billing   c04d11…
    reports   71ab90…

An account may have several tokens, so that one can be changed without a gap. The account is part
of the workflow identity (section 2): what one calls ``w_…`` is not what another calls so.

Only digests of the tokens are kept. Every one of them is compared, each in constant time, so how
long a refusal takes says nothing of how near a guess was.
"""

import hmac
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from checkpoint_reference_server.logs import log_fault, log_notice

TOKENS_MAX: Final = 1000
"""All of them are compared for each request."""
TOKEN_CHARACTERS_MIN: Final = 32
TOKEN_CHARACTERS_MAX: Final = 512
LOOK_SECONDS: Final = 1.0
"""How old what was read of the file may be; also how long a token that was removed still works."""
_ACCOUNT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What RFC 6750 lets a bearer token be."""


class TokensError(Exception):
    """The file cannot be used; the message names the line, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class _Token:
    digest: bytes
    account: str


class Accounts:
    """The accounts and their tokens, as the file says now.

    Args:
        path: the file.
        monotonic_seconds: the clock by which the file is looked at again.

    Raises:
        TokensError: the file cannot be read, or is no such file.
    """

    def __init__(self, path: Path, monotonic_seconds: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic_seconds = monotonic_seconds
        self._looked_at_seconds = monotonic_seconds()
        self._signature = self._sign()
        self._tokens = read_tokens(path)

    def account(self, authorization: str | None) -> str | None:
        """Whose token an ``Authorization`` header has; None where it has none that is known."""
        self._look()
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        given = _digest(token.strip(" "))
        found = None
        for known in self._tokens:  # to the end, also after it was found
            if hmac.compare_digest(known.digest, given):
                found = known.account
        return found

    def _look(self) -> None:
        """Read the file again if it changed; keep what is known where it cannot be used."""
        now = self._monotonic_seconds()
        if now - self._looked_at_seconds < LOOK_SECONDS:
            return
        self._looked_at_seconds = now
        signature = self._sign()
        if signature == self._signature:
            return
        self._signature = signature
        try:
            self._tokens = read_tokens(self._path)
        except TokensError as error:
            # Its message has a line's number and our own words. The tokens of before go on
            # working: a slip of the pen must not shut everyone out.
            log_fault("tokens", error, event=f"the tokens file was not taken over: {error}")
        else:
            log_notice("tokens", f"the tokens file was read again: {len(self._tokens)} tokens")

    def _sign(self) -> tuple[int, ...] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns


def read_tokens(path: Path) -> tuple[_Token, ...]:
    """The tokens in a file, by their digests.

    Raises:
        TokensError: it cannot be read, a line is wrong, a token is there twice, or there is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TokensError(f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TokensError("it is no text in UTF-8") from None
    lines: dict[bytes, int] = {}
    tokens: list[_Token] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        wrong = _wrong(words)
        if wrong is not None:
            raise TokensError(f"line {number}: {wrong}")
        account, token = words
        digest = _digest(token)
        if digest in lines:
            raise TokensError(f"line {number}: the same token as in line {lines[digest]}")
        lines[digest] = number
        tokens.append(_Token(digest, account))
    if not tokens:
        raise TokensError("there is no token in it, so nobody could call")
    if len(tokens) > TOKENS_MAX:
        raise TokensError(f"it has {len(tokens)} tokens; at most {TOKENS_MAX} are compared")
    return tuple(tokens)


def _wrong(words: list[str]) -> str | None:
    if len(words) != 2:
        return "a line is an account, white space, and its token"
    account, token = words
    if not _ACCOUNT.fullmatch(account):
        return "an account is 1 to 64 letters, digits or any of ._@-, the first no mark"
    if not TOKEN_CHARACTERS_MIN <= len(token) <= TOKEN_CHARACTERS_MAX:
        return (
            f"a token has {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} characters; "
            "one is made by: openssl rand -hex 32"
        )
    if not _TOKEN.fullmatch(token):
        return "a token is letters, digits or any of -._~+/, perhaps with = at its end"
    return None


def _digest(token: str) -> bytes:
    # Nothing slow is needed, as for passwords: a token of 32 characters is not found by trying.
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
