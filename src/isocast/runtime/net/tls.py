"""TLS 1.3 at doors and pages that leave the machine, and what binds a door's handshake to its channel.

Whether an address uses TLS is said once, by `Market.uses_tls`: with `network.tls = "auto"` wherever it is not loopback.
A visitor trusts the market's own authority alone, and the certificate must name the address that it came to. The
certificate's hash goes into the proofs of the door's handshake: whoever stands between with another certificate, even
one of this market, has no proof that the other side believes.

Where the roster pins certificates (`runtime.market.pins`), a visitor looks at the pin when the handshake ends, before
it says a word. A certificate that was renewed is shown from the next connection on, as soon as the roster here pins it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.market.pins import CertificateFault, PinTrouble, authority_trouble, pin_trouble
from isocast.runtime.market.roster_files import ROSTER
from isocast.runtime.market.tls_files import CA, certificate_digests, certificate_paths
from isocast.terms.errors import ConfigurationError, IsocastError
from isocast.wire.door import NO_CHANNEL

__all__ = [
    "Judge",
    "ServerTls",
    "UnpinnedError",
    "certificate_fault",
    "channel_of",
    "client_tls",
    "is_this_machine",
    "judging",
    "server_tls",
    "service_tls",
    "shown_digest",
    "tls_trouble",
    "trusting",
]

Judge = Callable[[bytes], PinTrouble | None]
"""What is wrong with the certificate of a hash; None: nothing."""

_NOT_YET, _EXPIRED = 9, 10
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21, 27)
_OTHER_NAME = (62, 64)
"""Of OpenSSL's x509_vfy.h."""
_FAULTS: Final = {
    _NOT_YET: CertificateFault.EARLY,
    _EXPIRED: CertificateFault.EXPIRED,
    **dict.fromkeys(_OTHER_NAME, CertificateFault.ANOTHER),
    **dict.fromkeys(_UNKNOWN_ISSUER, CertificateFault.AUTHORITY),
}


def _no_trouble(_digest: bytes) -> PinTrouble | None:
    return None


def _pinned(market: Market, name: str) -> Judge:
    def judge(digest: bytes) -> PinTrouble | None:
        try:
            return pin_trouble(market, name, digest)
        except ConfigurationError as error:  # A roster that does not count vouches for nobody.
            return PinTrouble(CertificateFault.UNPINNED, f"cannot be judged: {error}")

    return judge


def _own_pinned(market: Market, name: str) -> Judge:
    """The same of what this machine shows itself, where other things are to be done about it."""
    judge = _pinned(market, name)

    def judge_own(digest: bytes) -> PinTrouble | None:
        trouble = judge(digest)
        if trouble is None:
            return None
        rule = f"isocast keys roster --pin {name} pins it, where root.key is, and isocast keys apply brings that here"
        return trouble._replace(text=f"is not one that the roster on this machine pins for {name}: {rule}")

    return judge_own


class UnpinnedError(ssl.SSLCertVerificationError):
    """A certificate that OpenSSL believes, and the roster does not."""

    def __init__(self, trouble: PinTrouble) -> None:
        """`trouble` says what to do."""
        super().__init__(1, trouble.text)
        self.trouble = trouble
        self.verify_code = 0
        self.verify_message = trouble.text


class _ShownContext(ssl.SSLContext):
    """A certificate as it is shown."""

    digest = NO_CHANNEL
    """SHA-256 of it."""


class ServerTls:
    """What a door or page presents: the certificate in its files, or the one before while that is all that counts."""

    def __init__(
        self, certificate: Path, private: Path, judge: Judge = _no_trouble, told: Callable[[str], None] = lambda _: None
    ) -> None:
        """`judge` says what is wrong with a certificate; of one that comes later `told` hears why it is not shown.

        OSError or ValueError for files that are none, UnpinnedError for a certificate that does not count.
        """
        self._files = (certificate, private, certificate.parent.parent / ROSTER)
        self._judge = judge
        self._told = told
        self._stamp = self._seen()
        self._shown = self._load()
        self.context: ssl.SSLContext = self._shown
        self.context.sni_callback = self._choose

    def _seen(self) -> tuple[tuple[int, int] | None, ...]:
        """What changes with the files: a roster may come to pin what is there."""
        return tuple([_stamp(path) for path in self._files])

    def _load(self) -> _ShownContext:
        certificate, private, _ = self._files
        context = _ShownContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # Nobody resumes: every handshake proves everything again.
        context.load_cert_chain(certificate, private)
        context.digest = certificate_digests(certificate)[0]
        trouble = self._judge(context.digest)
        if trouble is not None:
            raise UnpinnedError(trouble)
        return context

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """For each connection, when it begins."""
        stamp = self._seen()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._shown = self._load()
            except UnpinnedError as error:
                self._told(f"the new certificate {error.trouble.text}; until then the one before is shown")
            except (OSError, ValueError, IsocastError):
                self._told("the new certificate and its key are not both there: the one before is shown")
        connection.context = self._shown


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_ino
    return None


def shown_digest(connection: ssl.SSLObject | None) -> bytes:
    """The hash of the certificate that a door has shown on a connection."""
    context = None if connection is None else connection.context
    return context.digest if isinstance(context, _ShownContext) else NO_CHANNEL


def server_tls(market: Market, plan: NodePlan, told: Callable[[str], None] = lambda _: None) -> ServerTls | None:
    """How a node's doors and pages speak TLS; None where they do not. ConfigurationError without a certificate."""
    if not market.uses_tls(plan.address):
        return None
    certificate, private = certificate_paths(market, plan.origin)
    try:
        return ServerTls(certificate, private, _own_pinned(market, plan.origin), told)
    except UnpinnedError as error:
        raise ConfigurationError(str(certificate), "certificate", error.trouble.text) from None
    except (OSError, ValueError):
        rule = (
            f"{plan.address} is not loopback, and its doors need a certificate: isocast certs init makes it, or copy"
            f" {certificate.name} and {private.name} from where it was made"
        )
        raise ConfigurationError(str(certificate), "file", rule) from None


def service_tls(
    market: Market, name: str, address: str, certificate: Path | None, key: Path | None
) -> ssl.SSLContext | None:
    """How a service that is no node speaks TLS: with a certificate and its key, or else with the market's own for it.

    None without any, on loopback alone.
    """
    if (certificate is None) is not (key is None):
        raise ConfigurationError("command line", "--certificate", "needs its --private-key, and the other way round")
    judge: Judge = _no_trouble
    if certificate is None or key is None:
        certificate, key = certificate_paths(market, name)
        judge = _own_pinned(market, name)
        if not certificate.exists():
            if is_this_machine(address):
                return None
            rule = f"{address} is reached from elsewhere: isocast {name} certificate makes what that needs"
            raise ConfigurationError("command line", "--address", f"{rule}; or give --certificate, or use 127.0.0.1")
    try:
        return ServerTls(certificate, key, judge).context
    except UnpinnedError as error:
        raise ConfigurationError(str(certificate), "certificate", error.trouble.text) from None
    except (ssl.SSLError, ValueError):
        rule = "is no certificate in PEM with this key"
        raise ConfigurationError(str(certificate), "certificate", rule) from None
    except OSError as error:
        raise ConfigurationError(str(certificate), "certificate", f"cannot be read: {error.strerror}") from None


# ---- who comes in


def _check(connection: ssl.SSLObject | ssl.SSLSocket) -> None:
    """UnpinnedError for a certificate that the visitor's context does not count."""
    context = connection.context
    trouble = context.judge(channel_of(connection)) if isinstance(context, _JudgingContext) else None
    if trouble is not None:
        raise UnpinnedError(trouble)


class _JudgedObject(ssl.SSLObject):
    """A connection of asyncio whose handshake is not done before its certificate counts."""

    def do_handshake(self) -> None:
        super().do_handshake()
        _check(self)


class _JudgedSocket(ssl.SSLSocket):
    """The same of a socket."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - as the base has it
        super().do_handshake(block)
        _check(self)


class _JudgingContext(ssl.SSLContext):
    """Checks pins as well, for every connection that is made by it."""

    sslobject_class = _JudgedObject
    sslsocket_class = _JudgedSocket
    judge: Judge = staticmethod(_no_trouble)


def client_tls(market: Market, address: str, name: str = "") -> ssl.SSLContext | None:
    """How to come in at an address of the market; None where it does not speak TLS.

    `name`: whose certificate must be there, if the roster pins it; empty: anybody's of the market. ConfigurationError
    for an authority that is missing, or that the roster does not pin.
    """
    if not market.uses_tls(address):
        return None
    authority = certificate_paths(market, CA)[0]
    context = trusting(authority, _pinned(market, name))
    trouble = authority_trouble(market)
    if trouble:
        raise ConfigurationError(str(authority), "file", trouble)
    return context


def judging(judge: Judge = _no_trouble) -> ssl.SSLContext:
    """TLS 1.3 that believes nobody yet, and looks at pins besides."""
    context = _JudgingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.judge = judge
    return context


def trusting(authority: Path, judge: Judge = _no_trouble) -> ssl.SSLContext:
    """How to come in where certificates of one authority are shown; ConfigurationError without its own."""
    context = judging(judge)
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
    if isinstance(reason, UnpinnedError):
        return f"the certificate of {place} {reason.trouble.text}"
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
            " certs init was run, if you trust that machine; if it is there, whoever answers is not of this market"
        )
    return f"the certificate of {place} is refused: {reason.verify_message}; isocast certs show tells more"


def certificate_fault(reason: OSError) -> CertificateFault | None:
    """What nodes count a refusal as; None for one that is not about a certificate."""
    if isinstance(reason, UnpinnedError):
        return reason.trouble.fault
    if not isinstance(reason, ssl.SSLCertVerificationError):
        return None
    return _FAULTS.get(reason.verify_code, CertificateFault.OTHER)
