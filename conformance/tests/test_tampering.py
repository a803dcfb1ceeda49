"""The proxy that makes a right server wrong says nothing of connections that end."""

import pytest
from modelled import model_at_url

from checkpoint_conformance.client import HttpAnswer, Lost
from checkpoint_conformance.mutants.proxy import Forward, Message


@pytest.mark.parametrize(
    ("error", "told"), [(ConnectionResetError(), ""), (RuntimeError("a fault"), "a fault")]
)
def test_a_connection_that_ended_is_no_news(
    error: Exception, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A check that ends at its first fault hangs up on the rest; any other error is told."""

    def serve(_: Message, __: Forward) -> HttpAnswer:
        raise error

    with model_at_url(serve) as target, target.client() as client:
        # The connection ends after the proxy has said whatever it says.
        assert isinstance(client.exchange("POST", "/x", b"{}").answer, Lost)
    said = capfd.readouterr().err
    assert told in said
    assert bool(told) is bool(said)
