"""The tokens file: what it may say, whose a token is, and that it is read again."""

import hmac
import os
import secrets
from pathlib import Path

import pytest

from checkpoint_reference_server.accounts import (
    LOOK_SECONDS,
    TOKENS_MAX,
    Accounts,
    TokensError,
    read_tokens,
)

ALICE, BOB = "9f8e7d6c5b4a3f2e" * 4, "zq-bob.token~of_an+account/1234567=="
"""The same in every process that runs these tests, which name them by what they are given."""


class Clock:
    """The monotonic clock, as a test sets it."""

    seconds = 0.0

    def __call__(self) -> float:
        """What it shows."""
        return self.seconds


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with two accounts."""
    path = tmp_path / "tokens"
    path.write_text(f"# whose\n\nalice {ALICE}\n bob\t{BOB} \n")
    return path


def test_a_token_is_its_account_s(file: Path) -> None:
    """RFC 6750: the scheme in any case, one token."""
    accounts = Accounts(file)
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert accounts.account(f"{scheme} {ALICE}") == "alice"
    assert accounts.account(f"Bearer  {BOB} ") == "bob"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        ALICE,
        f"Basic {ALICE}",
        f"Bearer {ALICE[:-1]}",
        f"Bearer {ALICE}0",
        f"Bearer {ALICE.upper()}",
        f"Bearer {ALICE} {BOB}",
        f"Bearer,{ALICE}",
        "Bearer \udcff\u00e9",
    ],
)
def test_nothing_else_is_anybody_s(file: Path, header: str | None) -> None:
    """Whatever bytes a header had, as the HTTP layer decodes them."""
    assert Accounts(file).account(header) is None


def test_an_account_may_have_several_tokens(file: Path) -> None:
    """So that one is changed without a gap."""
    other = secrets.token_hex(32)
    file.write_text(f"{file.read_text()}alice {other}\n")
    accounts = Accounts(file)
    assert accounts.account(f"Bearer {ALICE}") == accounts.account(f"Bearer {other}") == "alice"


def test_every_token_is_compared(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the right one was found, so that time tells nothing of its place."""
    compared: list[bytes] = []
    real = hmac.compare_digest

    def counting(a: bytes, b: bytes) -> bool:
        compared.append(a)
        return real(a, b)

    accounts = Accounts(file)
    monkeypatch.setattr(hmac, "compare_digest", counting)
    for token, account in ((ALICE, "alice"), (BOB, "bob"), ("x" * 64, None)):
        compared.clear()
        assert accounts.account(f"Bearer {token}") == account
        assert len(compared) == 2


def test_no_token_is_kept(file: Path) -> None:
    """Digests alone: what a dump of the memory shows is of no use to anybody."""
    assert not any(token in repr(read_tokens(file)) for token in (ALICE, BOB))


WRONG = {
    "one word": "alice\n",
    "three words": f"alice {ALICE} zq\n",
    "a short token": f"alice {'z' * 31}\n",
    "a long token": f"alice {'z' * 513}\n",
    "a token with other characters": f"alice {'z' * 40}\u00e9\n",
    "a token with a mark inside": f"alice {'z' * 20}={'z' * 20}\n",
    "an account with other characters": f"al/ice {ALICE}\n",
    "an account that begins with a mark": f"-alice {ALICE}\n",
    "a long account": f"{'a' * 65} {ALICE}\n",
    "the words in the wrong order": f"{ALICE}{ALICE} alice\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_line_is_told_by_its_number_alone(file: Path, text: str) -> None:
    """What is wrong with it may be that the token stands where something else should."""
    file.write_text(f"{file.read_text()}{text}")
    with pytest.raises(TokensError, match=r"^line 5: an? ") as raised:
        read_tokens(file)
    assert not any(len(word) > 20 and word in str(raised.value) for word in text.split())


def test_a_token_is_there_once(file: Path) -> None:
    """Whose is it otherwise?"""
    file.write_text(f"{file.read_text()}carol {ALICE}\n")
    with pytest.raises(TokensError, match=r"^line 5: the same token as in line 3$"):
        read_tokens(file)


@pytest.mark.parametrize("text", ["", "\n", "# alice x\n"])
def test_a_file_without_tokens_is_refused(file: Path, text: str) -> None:
    """Nobody could call."""
    file.write_text(text)
    with pytest.raises(TokensError, match="there is no token in it"):
        read_tokens(file)


def test_there_are_not_too_many(file: Path) -> None:
    """All of them are compared."""
    lines = [f"a{number} {secrets.token_hex(16)}\n" for number in range(TOKENS_MAX + 1)]
    file.write_text("".join(lines[:-1]))
    assert len(read_tokens(file)) == TOKENS_MAX
    file.write_text("".join(lines))
    with pytest.raises(TokensError, match=f"at most {TOKENS_MAX}"):
        read_tokens(file)


def test_a_file_that_is_none(file: Path) -> None:
    """Not there, a folder, no text."""
    with pytest.raises(TokensError, match=r"cannot be read: No such file"):
        read_tokens(file.with_name("none"))
    with pytest.raises(TokensError, match=r"cannot be read: "):
        read_tokens(file.parent)
    file.write_bytes(b"alice \xff\n")
    with pytest.raises(TokensError, match="no text in UTF-8"):
        read_tokens(file)


def put(file: Path, text: str) -> None:
    """Another file in its place, as editors and secret stores put it."""
    other = file.with_name("other")
    other.write_text(text)
    other.replace(file)


def test_a_change_is_seen_a_second_later(file: Path) -> None:
    """A token that was removed works no more, one that was added does."""
    clock, new = Clock(), secrets.token_hex(32)
    accounts = Accounts(file, clock)
    put(file, f"bob {BOB}\ncarol {new}\n")
    clock.seconds = LOOK_SECONDS - 0.001
    assert accounts.account(f"Bearer {ALICE}") == "alice"
    clock.seconds = LOOK_SECONDS
    assert accounts.account(f"Bearer {ALICE}") is None
    assert accounts.account(f"Bearer {new}") == "carol"
    assert accounts.account(f"Bearer {BOB}") == "bob"


@pytest.mark.parametrize("how", ["wrong", "empty", "gone"])
def test_a_file_that_became_bad_is_not_taken_over(
    file: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was known goes on working, and the log says so, once, without the token."""
    clock, secret = Clock(), f"zq{secrets.token_hex(32)}"
    accounts = Accounts(file, clock)
    if how == "gone":
        file.unlink()
    else:
        put(file, "" if how == "empty" else f"{secret} alice\n")
    for look in range(1, 4):
        clock.seconds = look * LOOK_SECONDS
        assert accounts.account(f"Bearer {ALICE}") == "alice"
    said = capsys.readouterr()
    logged = said.out + said.err
    assert logged.count("the tokens file was not taken over: ") == 1
    assert ("line 1: " in logged) is (how == "wrong")
    assert secret not in logged
    put(file, f"alice {BOB}\n")
    clock.seconds = 4 * LOOK_SECONDS
    assert accounts.account(f"Bearer {ALICE}") is None
    assert accounts.account(f"Bearer {BOB}") == "alice"


def test_the_same_size_and_name_is_another_file(file: Path) -> None:
    """Written in place within one tick of a coarse clock, it is told by its time."""
    clock = Clock()
    accounts = Accounts(file, clock)
    status = file.stat()
    file.write_text(file.read_text().replace(ALICE, ALICE[::-1]))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    clock.seconds = LOOK_SECONDS
    assert accounts.account(f"Bearer {ALICE[::-1]}") == "alice"
