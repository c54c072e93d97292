"""Hostile bytes for the reader of packages: as they come, and with seal and signature put right around them.

And for both ends of the box office's HTTP (`tests/runtime/box_office/hostile_requests.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from tests.runtime.box_office.hostile_requests import REQUEST_WAYS, request_seeds
from tests.security.package_samples import CHEAP, ISSUED, MARKET, OFFICE, SECRET, cheap_mask, package
from tests.wire.mutations import accepts

from isocast.security import packages
from isocast.security.identities import ED25519_BYTES, statement
from isocast.security.packages import PackageLabel, open_package, read_label, read_secret, write_secret
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.signing import SignedKind

__all__ = ["PACKAGE_WAYS", "examine_package", "package_seeds"]


def _split(raw: bytes) -> tuple[PackageLabel, bytes, bytes]:
    label, head, sealed, _ = packages._parted(raw)  # noqa: SLF001
    return label, head, sealed


_LABEL, _HEAD, _SEALED = _split(package())
_PLAIN = packages._unsealed(cheap_mask(), _LABEL, _HEAD, _SEALED)  # noqa: SLF001
assert _PLAIN is not None


def _signed(body: bytes) -> bytes:
    return body + OFFICE.sign(statement(SignedKind.PACKAGE, MARKET, body))


def _raw(data: bytes) -> None:
    """Without a key nobody changes a bit of a package; what its label says has one spelling."""
    label = read_label(data)
    assert data.startswith(packages._write_label(label))  # noqa: SLF001
    assert data == package() or not _opens(data)


def _opens(data: bytes) -> bool:
    try:
        open_package(data, SECRET, MARKET, OFFICE.public, ISSUED, least=CHEAP)
    except RemoteProtocolError:
        return False
    return True


def _resigned(data: bytes) -> None:
    """An office that went mad: any bytes under its signature."""
    raw = _signed(data)
    # Guesses stay cheap: what costs more than a mebibyte is refused by the bounds, which other tests hold.
    if read_label(raw).stretching.memory_kib <= 1_024:
        open_package(raw, SECRET, MARKET, OFFICE.public, ISSUED, least=CHEAP)


def _resealed(data: bytes) -> None:
    """The same behind the seal, too: any bytes as keys."""
    sealed = packages._cipher(cheap_mask(), _HEAD).encrypt(_LABEL.nonce, data, _HEAD)  # noqa: SLF001
    raw = _signed(_HEAD + len(sealed).to_bytes(4) + sealed)
    opened = open_package(raw, SECRET, MARKET, OFFICE.public, ISSUED, least=CHEAP)
    assert len(opened.keys).to_bytes(2) + b"".join(map(packages._write_key, opened.keys)) == data  # noqa: SLF001


def _typed(data: bytes) -> None:
    secret = read_secret(data.decode(errors="replace"))
    assert read_secret(write_secret(secret)) == secret


PACKAGE_WAYS: tuple[Callable[[bytes], None], ...] = (_raw, _resigned, _resealed, _typed, *REQUEST_WAYS)


def examine_package(data: bytes) -> bool:
    """Send the bytes into the reader that the first one chooses; True when it accepted them."""
    return accepts(PACKAGE_WAYS, data)


def package_seeds() -> list[bytes]:
    """Inputs that are accepted, for a fuzzer to start from."""
    assert _PLAIN is not None
    whole = package()
    inputs = (whole, whole[:-ED25519_BYTES], _PLAIN, write_secret(SECRET).encode())
    found = [bytes((way,)) + data for way, data in enumerate(inputs)]
    return found + [bytes((PACKAGE_WAYS.index(way),)) + data for way, data in request_seeds()]
