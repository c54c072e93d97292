"""Where a market's certificates and the token of its status pages are, and whether they are safe there.

    tls/ca.crt            the authority's certificate: on every machine, and with everybody who comes in at a door
    tls/ca.key            its private key: only where certificates are made; keep it offline
    tls/NAME.crt, .key    a node's certificate and private key, or the box office's: only where it runs
    status.token          what a status page away from loopback asks for: nodes, operators and whoever scrapes metrics

All in the keys directory, private keys and the token with mode 0600. `certificates` makes them; files of another
authority may take their place, as long as a node's certificate names its address.
"""

from __future__ import annotations

import ssl
import stat
from hashlib import sha256
from pathlib import Path

from isocast.runtime.market.model import Market
from isocast.terms.errors import ConfigurationError

__all__ = [
    "CA",
    "OFFICE",
    "TRADING_GATEWAY",
    "certificate_digests",
    "certificate_paths",
    "check_private",
    "read_status_token",
    "read_token",
    "token_path",
]

CA = "ca"
OFFICE = "box-office"
"""The box office, which is no node of the market's file."""
TRADING_GATEWAY = "trading-gateway"
"""The ways in of a gateway, which is none either."""
_FOLDER = "tls"
_TOKEN = "status.token"  # noqa: S105 - a file's name
_TOKEN_CHARS_MAX = 1_024
_OTHERS = 0o077


def certificate_paths(market: Market, name: str) -> tuple[Path, Path]:
    """Where the certificate and the private key of a node, or of the authority, are."""
    folder = market.keys_directory / _FOLDER
    return folder / f"{name}.crt", folder / f"{name}.key"


def certificate_digests(path: Path) -> tuple[bytes, ...]:
    """SHA-256 of each certificate of a file, the node's own first; OSError or ValueError for a file that has none."""
    parts = path.read_text(encoding="ascii").split(ssl.PEM_FOOTER)[:-1]
    found = [part[part.index(ssl.PEM_HEADER) :] + ssl.PEM_FOOTER for part in parts]
    if not found:
        raise ValueError("no certificate in PEM")
    return tuple([sha256(ssl.PEM_cert_to_DER_cert(text)).digest() for text in found])


def token_path(market: Market) -> Path:
    """Where the token of status pages is."""
    return market.keys_directory / _TOKEN


def read_status_token(market: Market) -> str:
    """What a status page asks for; ConfigurationError, which does not show it, without a sound file."""
    return read_token(token_path(market))


def read_token(path: Path) -> str:
    """The token in a file."""
    try:
        check_private(path)
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        rule = "is missing or unreadable: isocast certs init makes it, or copy it from where it was made"
        raise ConfigurationError(str(path), "file", rule) from None
    if not token or len(token) > _TOKEN_CHARS_MAX or not token.isprintable() or " " in token:
        raise ConfigurationError(str(path), "token", "must be one line without spaces: remove it and make a new one")
    return token


def check_private(path: Path) -> None:
    """ConfigurationError for a file that others may read; OSError for one that is not there."""
    mode = path.stat().st_mode
    if mode & _OTHERS:
        rule = f"{stat.S_IMODE(mode):04o} lets others read it: chmod 600 {path}, or make a new one"
        raise ConfigurationError(str(path), "mode", rule)
