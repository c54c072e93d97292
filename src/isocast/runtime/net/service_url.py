"""Where a service over HTTPS is, as a person writes it, and whose certificates are believed there.

Passwords and tokens go to such places: without TLS they go to this machine alone, and a URL never carries one.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from time import time_ns
from typing import NamedTuple
from urllib.parse import urlsplit

from isocast.runtime.market.pins import authority_judged_by, judged_by
from isocast.runtime.market.roster_files import read_roster_file
from isocast.runtime.net.tls import is_this_machine, judging
from isocast.terms.errors import ConfigurationError

__all__ = ["ServiceUrl", "believing", "plain", "read_service_url"]

_PORTS = {"https": 443, "http": 80}
_SHOWN_MAX = 400


class ServiceUrl(NamedTuple):
    """Where a service answers."""

    host: str
    port: int | None
    """None: that of the scheme."""
    is_tls: bool

    @property
    def place(self) -> str:
        """As messages name it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def number(self) -> int:
        """The port, whether it was said or not."""
        return self.port if self.port is not None else _PORTS["https" if self.is_tls else "http"]


def read_service_url(url: str, what: str, file: str = "command line") -> ServiceUrl:
    """The place of `what`, such as "a box office"; ConfigurationError, which shows no password, for a bad URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.path not in ("", "/"):
        raise ConfigurationError(file, "URL", f"must be https://HOST or https://HOST:PORT of {what}")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(file, "URL", "must not have a password in it: it is asked for")
    if parts.scheme == "http" and not is_this_machine(parts.hostname):
        rule = "a password goes over https only, except to this machine: say https://"
        raise ConfigurationError(file, "URL", rule)
    return ServiceUrl(parts.hostname, port, parts.scheme == "https")


def believing(ca: Path | None, roster: Path | None = None, name: str = "") -> ssl.SSLContext:
    """TLS 1.3 that believes one authority, or those of this machine; ConfigurationError for a file that is none.

    With a roster, the authority and the certificate of the service of this name must be those that it pins.
    """
    pins = None if roster is None else read_roster_file(roster, now_ns=time_ns())
    context = judging() if pins is None else judging(lambda digest: judged_by(pins, name, digest))
    try:
        if ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(ca)
            trouble = "" if pins is None else authority_judged_by(pins, ca)
            if trouble:
                raise ConfigurationError(str(ca), "--ca", trouble)
    except (ssl.SSLError, ValueError):
        raise ConfigurationError(str(ca), "--ca", "holds no certificate in PEM") from None
    except OSError as error:
        raise ConfigurationError(str(ca), "--ca", f"cannot be read: {error.strerror}") from None
    return context


def plain(text: str) -> str:
    """Text of a foreign service for a terminal: control characters become question marks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_SHOWN_MAX])
