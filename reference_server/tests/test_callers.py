"""The defence against DNS rebinding: which hosts and origins are admitted; none is quoted."""

import pytest

from checkpoint_reference_server.callers import Callers

OWN = Callers()
NAMED = Callers.of(
    ("Tools.example.com", "proxy.example.com:8443"), ("https://App.example.com", "app://client")
)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "tool.localhost:80",
        "127.0.0.1",
        "127.0.0.1:8080",
        "10.1.2.3:8080",
        "[::1]",
        "[::1]:8080",
        "[fe80::1]:80",
    ],
)
def test_this_machine_and_addresses_need_no_naming(host: str) -> None:
    """An address cannot be pointed anywhere, and a browser sends what the page's author wrote."""
    assert OWN.refuse(host, None) is None


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "zq.example.com",
        "localhost.zq.com",
        "notlocalhost",
        "127.0.0.1.zq.com",
        "127.0.0.1.nip.io:8080",
        "0x7f.1",
        "2130706433",
        "localhost:port",
        "localhost:99999",
        "zq@localhost",
        "localhost@zq.com",
        "localhost/zq",
        "localhost?zq",
        "localhost#zq",
        "localhost\\zq",
        "localhost zq",
        "[::1",
        "::1",
        "[zq]",
    ],
)
def test_other_hosts_are_misdirected(host: str | None) -> None:
    """421, by whatever name this machine can be reached; and nothing is read into a broken one."""
    refused = OWN.refuse(host, None)
    assert refused is not None
    assert refused[0] == 421
    assert "zq" not in refused[1]


@pytest.mark.parametrize(
    ("host", "admitted"),
    [
        ("tools.example.com", True),
        ("TOOLS.EXAMPLE.COM:9", True),
        ("proxy.example.com:8443", True),
        ("proxy.example.com", False),
        ("proxy.example.com:8444", False),
        ("more.tools.example.com", False),
        ("example.com", False),
    ],
)
def test_an_operator_names_a_host_for_every_port_or_for_one(host: str, admitted: bool) -> None:
    """Whole names, in any case."""
    assert (NAMED.refuse(host, None) is None) is admitted


@pytest.mark.parametrize(
    ("origin", "admitted"),
    [
        ("http://localhost", True),
        ("http://localhost:6274", True),
        ("https://127.0.0.1:8443", True),
        ("http://[::1]:80", True),
        ("https://app.example.com", True),
        ("HTTPS://APP.EXAMPLE.COM", True),
        ("app://client", True),
        ("https://app.example.com:8443", False),
        ("http://app.example.com", False),
        ("https://tools.example.com", False),
        ("http://10.1.2.3", False),
        ("http://localhost.zq.com", False),
        ("http://zq@localhost", False),
        ("http://localhost/zq", False),
        ("app://localhost", False),
        ("file://", False),
        ("null", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_pages_of_this_machine_and_of_named_origins_are_admitted(
    origin: str, admitted: bool
) -> None:
    """Otherwise 403; not pages of any address, which are somebody else's all the same."""
    refused = NAMED.refuse("localhost", origin)
    assert refused == (None if admitted else (403, refused[1] if refused else ""))
    assert refused is None or "zq" not in refused[1]


@pytest.mark.parametrize(
    ("hosts", "origins"),
    [
        (("https://tools.example.com",), ()),
        (("tools.example.com/mcp",), ()),
        (("tools example com",), ()),
        (("tools.example.com:*",), ()),
        (("",), ()),
        ((), ("app.example.com",)),
        ((), ("https://app.example.com/",)),
        ((), ("https://",)),
        ((), ("*",)),
    ],
)
def test_what_is_no_host_or_origin_is_said_at_the_start(
    hosts: tuple[str, ...], origins: tuple[str, ...]
) -> None:
    """A name that never matches would be found out by its users."""
    with pytest.raises(ValueError, match=r"is no (host|origin); one looks like: "):
        Callers.of(hosts, origins)
