"""Certificates of a market's doors and pages: an authority (CA) of the market's own, and one certificate for each node.

`tls_files` says where they are. Keys are ECDSA on P-256, which browsers know as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.market.pins import authority_trouble, pin_trouble
from isocast.runtime.market.tls_files import CA, certificate_digests, certificate_paths, check_private, token_path
from isocast.terms.errors import ConfigurationError

__all__ = [
    "CertificateFile",
    "certify_service",
    "init_certificates",
    "read_certificates",
    "renew_certificate",
]

NODE_DAYS = 825
"""How long a node's certificate is good: renewed in time by `isocast certs node`, and by nobody else."""
_CA_DAYS = 3_650
_GRACE = timedelta(hours=1)
"""Certificates begin a little in the past: clocks of machines differ."""
_SOON = timedelta(days=30)
_PRIVATE = 0o600
_PUBLIC = 0o644
_TOKEN_BYTES = 32
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*")


@dataclass(frozen=True, slots=True)
class CertificateFile:
    """One certificate: what was done about it, or what was found."""

    name: str
    path: Path
    made: bool = False
    """By this call."""
    fault: str = ""
    """What is wrong, and what to do; empty: nothing."""
    fingerprint: str = ""
    """SHA-256 of the certificate, which people and the roster compare."""
    names: tuple[str, ...] = ()
    """The addresses and names that it is for."""
    ends: datetime | None = None


def init_certificates(market: Market) -> tuple[CertificateFile, ...]:
    """Make the authority, every node's certificate and the pages' token where they are missing; no file is touched."""
    folder = certificate_paths(market, CA)[0].parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _init_token(market)
        certificate, private = certificate_paths(market, CA)
        found = [CertificateFile(CA, certificate, made=not certificate.exists())]
        if not certificate.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            _write(private, _private_bytes(key), _PRIVATE)
            _write(certificate, _authority(market, key).public_bytes(serialization.Encoding.PEM), _PUBLIC)
        for name, plans in _by_origin(market).items():
            path, _ = certificate_paths(market, name)
            is_missing = not path.exists()
            if is_missing:
                _make_node(market, name, plans, NODE_DAYS)
            found.append(CertificateFile(name, path, made=is_missing))
    except OSError as error:
        raise ConfigurationError(str(folder), "certificates", f"cannot be written: {error.strerror}") from error
    return tuple(found)


def renew_certificate(market: Market, name: str, *, days: int = NODE_DAYS) -> CertificateFile:
    """A new key and certificate for one node, in place of the old ones."""
    plans = _by_origin(market).get(name)
    if plans is None:
        rule = f"there is no node {name!r} in {market.file}: name one of {', '.join(_by_origin(market))}"
        raise ConfigurationError("command line", "certs node", rule)
    try:
        _make_node(market, name, plans, days)
    except OSError as error:
        folder = certificate_paths(market, CA)[0].parent
        raise ConfigurationError(str(folder), "certificates", f"cannot be written: {error.strerror}") from error
    return CertificateFile(name, certificate_paths(market, name)[0], made=True)


def certify_service(market: Market, name: str, hosts: Sequence[str], *, days: int = NODE_DAYS) -> CertificateFile:
    """A new key and certificate for a service that is no node, at these hosts, in place of the old ones."""
    try:
        _make(market, name, hosts, days)
    except (OSError, ValueError) as error:
        trouble = error.strerror if isinstance(error, OSError) else f"{', '.join(hosts)} are no names of machines"
        raise ConfigurationError(str(certificate_paths(market, name)[0]), "certificate", f"{trouble}") from None
    return CertificateFile(name, certificate_paths(market, name)[0], made=True, names=tuple(hosts))


def read_certificates(market: Market, now: datetime | None = None) -> tuple[CertificateFile, ...]:
    """Every certificate of the market that is on this machine, and what is wrong with it; missing ones are faults."""
    instant = now or datetime.now(UTC)
    wanted: dict[str, Sequence[NodePlan]] = {CA: (), **_by_origin(market)}
    return tuple([_judged(market, name, plans, instant) for name, plans in wanted.items()])


def _by_origin(market: Market) -> dict[str, list[NodePlan]]:
    """The processes of each table of the file: one certificate is for all of them."""
    found: dict[str, list[NodePlan]] = {}
    for plan in (market.whole or market).nodes:
        found.setdefault(plan.origin, []).append(plan)
    return found


# Making -------------------------------------------------------------------------------------------


def _init_token(market: Market) -> None:
    path = token_path(market)
    if not path.exists():
        _write(path, f"{token_hex(_TOKEN_BYTES)}\n".encode(), _PRIVATE)


def _named(market: Market, name: str) -> x509.Name:
    # A common name has 64 characters at most.
    parts = [(NameOID.ORGANIZATION_NAME, f"isocast market {market.name}"[:64]), (NameOID.COMMON_NAME, name[:64])]
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


def _begun(subject: x509.Name, issuer: x509.Name, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _GRACE)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_others: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_others,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(market: Market, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _named(market, "certificate authority")
    built = _begun(name, name, _CA_DAYS).public_key(key.public_key())
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    built = built.add_extension(_usage(signs_others=True), critical=True)
    built = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return built.sign(key, hashes.SHA256())


def _make_node(market: Market, name: str, plans: Sequence[NodePlan], days: int) -> None:
    _make(market, name, [plan.address for plan in plans], days)


def _make(market: Market, name: str, hosts: Sequence[str], days: int) -> None:
    authority, signer = _load_authority(market)
    key = ec.generate_private_key(ec.SECP256R1())
    others = [_general_name(host) for host in dict.fromkeys(hosts)]
    built = _begun(_named(market, name), authority.subject, days).public_key(key.public_key())
    built = built.add_extension(x509.SubjectAlternativeName(others), critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    built = built.add_extension(_usage(signs_others=False), critical=True)
    built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = built.add_extension(issuer, critical=False).sign(signer, hashes.SHA256())
    certificate, private = certificate_paths(market, name)
    _write(private, _private_bytes(key), _PRIVATE)
    _write(certificate, made.public_bytes(serialization.Encoding.PEM), _PUBLIC)


def _general_name(host: str) -> x509.GeneralName:
    """An address, or else a name of DNS; ValueError for what is neither."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        if not _HOST.fullmatch(host):
            raise
        return x509.DNSName(host)


def _load_authority(market: Market) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate, private = certificate_paths(market, CA)
    try:
        check_private(private)
        key = serialization.load_pem_private_key(private.read_bytes(), None)
        authority = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError, TypeError):
        rule = "the authority's key is needed to make a certificate: run this where isocast certs init was run"
        raise ConfigurationError(str(private), "file", rule) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        rule = "is of another authority: make the certificate there, and copy it to this directory"
        raise ConfigurationError(str(private), "key", rule)
    return authority, key


def _private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """All of the file or the old one, readable by nobody else at any time if it is private."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            os.write(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


# Judging ------------------------------------------------------------------------------------------


def _judged(market: Market, name: str, plans: Sequence[NodePlan], now: datetime) -> CertificateFile:
    path, private = certificate_paths(market, name)
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        if name != CA:
            check_private(private)
    except FileNotFoundError:
        return CertificateFile(name, path, fault="is missing: isocast certs init makes it, or copy it from there")
    except ConfigurationError as error:
        return CertificateFile(name, path, fault=error.rule)
    except (OSError, ValueError):
        return CertificateFile(name, path, fault="is not a certificate: remove it and run isocast certs init")
    names = _names_of(found)
    lacking = [plan.address for plan in plans if plan.address not in names]
    fault = ""
    if now < found.not_valid_before_utc:
        fault = f"begins at {found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC: set this machine's clock"
    elif now > found.not_valid_after_utc:
        fault = f"ended on {found.not_valid_after_utc:%Y-%m-%d}: isocast certs node {name} makes a new one"
    elif name != CA and lacking:
        fault = f"does not name {lacking[0]}: isocast certs node {name} makes a new one"
    elif trouble := authority_trouble(market) if name == CA else _unpinned(market, name, path):
        fault = trouble
    elif now + _SOON > found.not_valid_after_utc:
        fault = f"ends on {found.not_valid_after_utc:%Y-%m-%d}: renew it soon, with isocast certs node {name}"
    return CertificateFile(
        name,
        path,
        fault=fault,
        fingerprint=found.fingerprint(hashes.SHA256()).hex(),
        names=names,
        ends=found.not_valid_after_utc,
    )


def _unpinned(market: Market, name: str, path: Path) -> str:
    trouble = pin_trouble(market, name, certificate_digests(path)[0])
    return "" if trouble is None else trouble.text


def _names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = [str(address) for address in others.get_values_for_type(x509.IPAddress)]
    return (*addresses, *others.get_values_for_type(x509.DNSName))
