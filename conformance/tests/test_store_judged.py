"""What a server leaves in a real store is judged: the right layout is not blamed, each fault is.

The server is the model, which keeps nothing in the store; what a layout would keep there is
written by the test, so that each fault is one line.
"""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import redis
from looking_away import Quiet
from modelled import model_at_url, model_server

from checkpoint_conformance.checks import store
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mutants.leavings import of_record
from checkpoint_conformance.mutants.proxy import Forward, Message
from checkpoint_conformance.run import PROFILES, Run
from checkpoint_model import parse_timestamp

Leave = Callable[["redis.Redis", Message, int], None]
"""What a layout keeps of a request whose record ends at a time in ms."""


def _right(client: "redis.Redis", message: Message, ends_ms: int) -> None:
    client.set(f"wc:{of_record(message)}", "1", pxat=ends_ms)


def _for_ever(client: "redis.Redis", message: Message, _: int) -> None:
    client.set(f"wc:{of_record(message)}", "1")


def _a_second_longer(client: "redis.Redis", message: Message, ends_ms: int) -> None:
    client.set(f"wc:{of_record(message)}", "1", pxat=ends_ms + 1000)


def _holder_in_a_value(client: "redis.Redis", message: Message, ends_ms: int) -> None:
    holder = message.json.get("holder", "")
    client.hset(f"wc:{of_record(message)}", mapping={"at": "." * 4000, "by": f"by {holder}"})
    client.pexpireat(f"wc:{of_record(message)}", ends_ms)


def _holder_in_a_name(client: "redis.Redis", message: Message, ends_ms: int) -> None:
    holder = message.json.get("holder", "")
    client.hset(f"wc:{of_record(message)}", mapping={f"held by {holder}": "1"})
    client.pexpireat(f"wc:{of_record(message)}", ends_ms)


def _key_of_the_workflow(client: "redis.Redis", message: Message, ends_ms: int) -> None:
    client.set(f"wc:{message.json['workflow_key']}", "1", pxat=ends_ms)


def _in_capital_digits(client: "redis.Redis", message: Message, ends_ms: int) -> None:
    digits = str(message.json["workflow_key"]).encode().hex().upper()
    client.set(f"wc:{of_record(message)}", digits, pxat=ends_ms)


def _named_in_base64(client: "redis.Redis", message: Message, ends_ms: int) -> None:
    client.set(f"wc/records/{_base64(message)}", "1", pxat=ends_ms)


def _named_by_whole_base64(client: "redis.Redis", message: Message, ends_ms: int) -> None:
    client.set(f"wc:{_base64(message)}=", "1", pxat=ends_ms)


def _too_long_in_base64(client: "redis.Redis", message: Message, ends_ms: int) -> None:
    client.set(f"wc:{_base64(message)}:record", "1", pxat=ends_ms + 1000)


def _base64(message: Message) -> str:
    """A record's digest, not filled up, with a slash in it at a place of its own."""
    digest = bytes.fromhex(of_record(message))
    text, place = base64.b64encode(digest).decode().rstrip("="), digest[0] % 32
    return f"{text[:place]}/{text[place + 1 :]}"


@pytest.fixture
def client(valkey_url: str) -> Iterator["redis.Redis"]:
    """The store, without what a test leaves there."""
    with redis.Redis.from_url(valkey_url) as client:
        yield client
        for key in client.scan_iter("wc*"):
            client.delete(key)


@pytest.mark.parametrize(
    ("leave", "rules"),
    [
        (_right, set()),
        (_for_ever, {"WC-PRIV-3"}),
        (_a_second_longer, {"WC-PRIV-3"}),
        (_holder_in_a_value, {"WC-PRIV-1"}),
        (_holder_in_a_name, {"WC-PRIV-1"}),
        (_key_of_the_workflow, {"WC-PRIV-1"}),
        (_in_capital_digits, {"WC-PRIV-2"}),
        (_named_in_base64, set()),
        (_named_by_whole_base64, set()),
        (_too_long_in_base64, {"WC-PRIV-3"}),
    ],
    ids=lambda value: value.__name__[1:] if callable(value) else "",
)
def test_what_lies_in_the_store_is_judged(
    client: "redis.Redis", valkey_url: str, leave: Leave, rules: set[str]
) -> None:
    """By its own rule, and by no other."""
    right = model_server()

    def serve(message: Message, forward: Forward) -> HttpAnswer:
        answer = right(message, forward)
        if message.is_to_tool and answer.status == 200:
            ends_ms = parse_timestamp(json.loads(answer.body)["state_expires_at"])
            leave(client, message, ends_ms)
        return answer

    with model_at_url(serve) as target:
        run = Run(
            target=replace(target, store_url=valkey_url),
            profile=PROFILES["quick"],
            seed=1,
            progress=Quiet(),
        )
        store.what_lies_there(run)
        run.close()
    assert set(run.tally.failures) == rules
    assert run.tally.incomplete == []
