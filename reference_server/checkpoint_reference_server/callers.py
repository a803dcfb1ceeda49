"""Who may call from a browser, by either binding: the defence against DNS rebinding.

A page whose name its owner points at 127.0.0.1 makes its visitor's browser talk to this server as
if they were of one origin. What the browser cannot hide is the name: it is in ``Host``, and the
page's own in ``Origin``. So a name must be one that an operator gave, or be this machine's own;
an address in ``Host`` is nobody's name and cannot be pointed anywhere.
"""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_OWN_NAME: Final = "localhost"
MISDIRECTED: Final = 421
FORBIDDEN: Final = 403


@dataclass(frozen=True, kw_only=True, slots=True)
class Callers:
    """The names that are admitted beside this machine's own."""

    hosts: frozenset[str] = frozenset()
    """As in ``Host``: a name, which stands for every port of it, or ``name:port``."""
    origins: frozenset[str] = frozenset()
    """As in ``Origin``: ``scheme://name``, with ``:port`` where it is not the scheme's own."""

    @classmethod
    def of(cls, hosts: tuple[str, ...], origins: tuple[str, ...]) -> "Callers":
        """From what an operator wrote.

        Raises:
            ValueError: one of them is no host or no origin; the message names it.
        """
        for host in hosts:
            if _split(f"//{host}") is None:
                raise ValueError(f"{host!r} is no host; one looks like: tools.example.com")
        for origin in origins:
            if "://" not in origin or _split(origin) is None:
                raise ValueError(f"{origin!r} is no origin; one looks like: https://example.com")
        return cls(
            hosts=frozenset(host.lower() for host in hosts),
            origins=frozenset(origin.lower() for origin in origins),
        )

    def refuse(self, host: str | None, origin: str | None) -> tuple[int, str] | None:
        """HTTP status and text of a refusal, which quotes neither header; None to admit."""
        if host is None or not self._serves(host.lower()):
            return (
                MISDIRECTED,
                "No such host is served here; its operator may allow it (--allowed-host).",
            )
        if origin is not None and not self._admits(origin.lower()):
            return (
                FORBIDDEN,
                "This page's origin is not admitted; the operator may allow it (--allowed-origin).",
            )
        return None

    def _serves(self, host: str) -> bool:
        name = _split(f"//{host}")
        return name is not None and (
            host in self.hosts or name in self.hosts or _is_own(name) or _is_address(name)
        )

    def _admits(self, origin: str) -> bool:
        if origin in self.origins:
            return True
        # Not any address: a page at one is somebody else's page all the same.
        name = _split(origin) if origin.startswith(("http://", "https://")) else None
        return name is not None and (
            _is_own(name) or (_is_address(name) and ip_address(name).is_loopback)
        )


@lru_cache(maxsize=64)  # each client sends the same ones with every request
def _split(url: str) -> str | None:
    """The name or address in a URL that has no more than scheme, host and port."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is none
    except ValueError:
        return None
    rest = (parts.path, parts.query, parts.fragment)
    if "@" in parts.netloc or any(rest) or any(mark in url for mark in "?#\\ \t\r\n"):
        return None
    return parts.hostname


def _is_own(name: str) -> bool:
    return name == _OWN_NAME or name.endswith(f".{_OWN_NAME}")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
