"""TLS 1.3 at doors and pages that leave the machine, and what binds a door's handshake to its channel.

Whether an address uses TLS is said once, by `Market.uses_tls`: with `network.tls = "auto"` wherever it is not loopback.
A visitor trusts the market's own authority alone, and the certificate must name the address that it came to. The
certificate's hash goes into the proofs of the door's handshake: whoever stands between with another certificate, even
one of this market, has no proof that the other side believes.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.market.tls_files import CA, certificate_paths
from isocast.terms.errors import ConfigurationError
from isocast.wire.door import NO_CHANNEL

__all__ = [
    "ServerTls",
    "channel_of",
    "client_tls",
    "is_this_machine",
    "server_tls",
    "service_tls",
    "tls_trouble",
    "trusting",
]

_NOT_YET, _EXPIRED = 9, 10
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21, 27)
_OTHER_NAME = (62, 64)
"""Of OpenSSL's x509_vfy.h."""


class ServerTls(NamedTuple):
    """What a door or page presents."""

    context: ssl.SSLContext
    digest: bytes
    """SHA-256 of its certificate."""


def server_tls(market: Market, plan: NodePlan) -> ServerTls | None:
    """How a node's doors and pages speak TLS; None where they do not. ConfigurationError without a certificate."""
    if not market.uses_tls(plan.address):
        return None
    certificate, private = certificate_paths(market, plan.origin)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # Nobody resumes: every handshake proves everything again.
    try:
        context.load_cert_chain(certificate, private)
        text = certificate.read_text(encoding="ascii")
        first = text[: text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
        digest = sha256(ssl.PEM_cert_to_DER_cert(first[first.index(ssl.PEM_HEADER) :])).digest()
    except (OSError, ValueError):
        rule = (
            f"{plan.address} is not loopback, and its doors need a certificate: isocast certs init makes it, or copy"
            f" {certificate.name} and {private.name} from where it was made"
        )
        raise ConfigurationError(str(certificate), "file", rule) from None
    return ServerTls(context, digest)


def service_tls(
    market: Market, name: str, address: str, certificate: Path | None, key: Path | None
) -> ssl.SSLContext | None:
    """How a service that is no node speaks TLS: with a certificate and its key, or else with the market's own for it.

    None without any, on loopback alone.
    """
    if (certificate is None) is not (key is None):
        raise ConfigurationError("command line", "--certificate", "needs its --private-key, and the other way round")
    if certificate is None or key is None:
        certificate, key = certificate_paths(market, name)
        if not certificate.exists():
            if is_this_machine(address):
                return None
            rule = f"{address} is reached from elsewhere: isocast {name} certificate makes what that needs"
            raise ConfigurationError("command line", "--address", f"{rule}; or give --certificate, or use 127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError:
        rule = "is no certificate in PEM with this key"
        raise ConfigurationError(str(certificate), "certificate", rule) from None
    except OSError as error:
        raise ConfigurationError(str(certificate), "certificate", f"cannot be read: {error.strerror}") from None
    return context


def client_tls(market: Market, address: str) -> ssl.SSLContext | None:
    """How to come in at an address of the market; None where it does not speak TLS."""
    if not market.uses_tls(address):
        return None
    return trusting(certificate_paths(market, CA)[0])


def trusting(authority: Path) -> ssl.SSLContext:
    """How to come in where certificates of one authority are shown; ConfigurationError without its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(authority)
    except (OSError, ValueError):
        rule = "the authority's certificate is needed here: copy it from where isocast certs init was run"
        raise ConfigurationError(str(authority), "file", rule) from None
    return context


def is_this_machine(host: str) -> bool:
    """Whether a host is loopback: there alone passwords and tokens may travel without TLS."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def channel_of(connection: ssl.SSLObject | ssl.SSLSocket | None) -> bytes:
    """What a visitor puts into its proof: the hash of the certificate that it was shown."""
    if connection is None:
        return NO_CHANNEL
    certificate = connection.getpeercert(binary_form=True)
    return NO_CHANNEL if certificate is None else sha256(certificate).digest()


def tls_trouble(place: str, reason: OSError) -> str:
    """What is wrong with the other side's certificate, or with our clock, and what to do about it."""
    if not isinstance(reason, ssl.SSLCertVerificationError):
        return f"{place} does not speak TLS as this side does: both must read the same market file (network.tls)"
    code = reason.verify_code
    if code == _NOT_YET:
        now = datetime.now(UTC)
        return (
            f"the certificate of {place} is not valid yet by this machine's clock, which shows"
            f" {now:%Y-%m-%d %H:%M} UTC: set the clock"
        )
    if code == _EXPIRED:
        return f"the certificate of {place} has expired: make a new one with isocast certs node NAME, and restart it"
    if code in _OTHER_NAME:
        return (
            f"the certificate of {place} is another node's, for another address: give that node its own, with"
            " isocast certs node NAME"
        )
    if code in _UNKNOWN_ISSUER:
        return (
            f"the certificate of {place} is not of this market's authority: copy tls/ca.crt from where isocast"
            " certs init was run, if you trust that machine"
        )
    return f"the certificate of {place} is refused: {reason.verify_message}; isocast certs show tells more"
