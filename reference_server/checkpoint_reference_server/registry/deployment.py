"""What a description says of one deployment, and of no other."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

DEFAULT_PUBLIC_URL: Final = "http://127.0.0.1:8080"
"""Where ``serve`` listens unless told otherwise."""
DURABILITY_UNSAID: Final = (
    "Nothing is promised to survive a crash of the store: records may be gone after one."
)
"""What holds of any store (WC-PRIV-5); an operator who knows more of theirs says so."""
_DOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    """One place where the tool is served.

    Raises:
        ValueError: something in it cannot be published; the message says what.
    """

    public_url: str = DEFAULT_PUBLIC_URL
    """How callers reach the server: scheme, host, port, perhaps a path; no final slash.

    It is a setting and never taken from a request: whoever sends a ``Host`` of their own could
    otherwise have others sent there.
    """
    publisher_domain: str = ""
    """Who answers for the deployment; if not given, the host of the public URL, or
    ``localhost`` where that is an address, which is nobody's domain."""
    offers_mcp: bool = True
    durability: str = DURABILITY_UNSAID
    """One sentence: what survives a crash of the store."""
    asks_for_token: bool = False
    """Whether callers of the tool are authenticated, by bearer tokens."""

    def __post_init__(self) -> None:
        """Refuse what cannot be published, and settle whose deployment it is."""
        object.__setattr__(self, "public_url", _checked_url(self.public_url))
        domain = self.publisher_domain.lower() or self._own_domain()
        if not _DOMAIN.fullmatch(domain):
            raise ValueError(f"{self.publisher_domain!r} is no domain name")
        object.__setattr__(self, "publisher_domain", domain)
        if not self.durability.strip() or not self.durability.isprintable():
            raise ValueError("what survives a crash of the store is said in one line of text")

    @property
    def host(self) -> str:
        """The name or address in the public URL."""
        return urlsplit(self.public_url).hostname or ""

    def url(self, path: str) -> str:
        """The absolute URL of a path of the server."""
        return self.public_url + path

    def _own_domain(self) -> str:
        return self.host if _DOMAIN.fullmatch(self.host) else "localhost"


def listening_url(host: str, port: int, scheme: str = "http") -> str:
    """The URL at which a server that listens there is reached on its own machine."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound here
    return f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # read, because only that finds out whether it is a port
    except ValueError as error:
        raise ValueError(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no http or https URL")
    if "@" in parts.netloc or "?" in url or "#" in url or re.search(r"[^!-~]", url):
        raise ValueError(f"{url!r}: a public URL has scheme, host, port and path, and nothing else")
    return url.rstrip("/")
