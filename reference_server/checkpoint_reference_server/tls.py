"""TLS by the interpreter's own defaults: what an operator gave, and whether it can be used."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path


class TlsError(Exception):
    """The certificate or its key cannot be used; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """A certificate and its key. Its text has no password."""

    certificate: Path
    """PEM, with whatever leads from it to its authority."""
    key: Path | None = None
    """PEM; None where the key is in the certificate's file."""
    password: str | None = field(default=None, repr=False)
    """Of the key."""

    @classmethod
    def of(
        cls, certificate: Path | None, key: Path | None, password_file: Path | None
    ) -> "Tls | None":
        """From what an operator gave; None for plain HTTP.

        Raises:
            TlsError: something of it is not usable.
        """
        if certificate is None:
            if key is not None or password_file is not None:
                raise TlsError("a key for TLS needs its certificate: --tls-certificate")
            return None
        try:
            password = (
                None if password_file is None else password_file.read_text().removesuffix("\n")
            )
        except (OSError, UnicodeDecodeError):
            raise TlsError(f"the password file {password_file} cannot be read") from None
        tls = cls(certificate=certificate, key=key, password=password)
        tls.context()
        return tls

    def context(self) -> ssl.SSLContext:
        """For the side that serves.

        Raises:
            TlsError: the files are not what they should be.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Never None, at which OpenSSL would ask for one on the terminal.
            context.load_cert_chain(self.certificate, self.key, self.password or "")
        except (ssl.SSLError, OSError) as error:
            reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
            raise TlsError(
                f"TLS cannot be served with the certificate {self.certificate}: {reason}. "
                "It and its key are PEM files that belong together; an encrypted key needs "
                "--tls-key-password-file."
            ) from None
        return context
