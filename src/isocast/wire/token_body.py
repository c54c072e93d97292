"""The canonical bytes of a token: what its digest chains, its TOKEN frame carries and its parts divide.

The body names its epoch and sender itself, so that a token cut into parts, or read from a journal, is whole
without any frame. It holds `prev_digest`, so its digest vouches for every token before it too. All integers
are little-endian:

    epoch 4+4 | sender 8 | token 8 | instant 8 | first sequence 8 | stable 8 | secstable 8
    commit 16 | reveal 16 | previous digest 32
    runs 2 | steps 2 | grants 2 | control entries 1 | flags 1
    runs:    source 8, first 8, count 4, digest 32
    steps:   run 1, how many 1; or 2 and 2 when a value needs it (flag 1)
    grants:  source 8, window 4
    control: kind 2, length 2, subject 8, bytes; with 0x8000 in its kind an order follows (`orders`)
    disclosures, if there are any (flag 2): count 2, and each: source 8, number 8, link 32

Behind the body stands its owner's signature (`signing`), which covers the body and is no part of the digest: frames,
parts and logs carry both (`token_bytes`). One token has exactly one body: the reader refuses every other spelling.
"""

from __future__ import annotations

from struct import Struct, error, unpack_from
from struct import pack as pack_values
from typing import TYPE_CHECKING

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch
from isocast.wire.limits import (
    CONTROL_BYTES,
    DISCLOSURE_BYTES,
    GRANT_BYTES,
    LINK_BYTES,
    MAX_CONTROL_BODY,
    MAX_CONTROL_ENTRIES,
    MAX_DISCLOSURES,
    MAX_GRANTS,
    MAX_LINKS,
    MAX_MESSAGES_PER_TOKEN,
    MAX_NUMBER,
    MAX_PART_BODY,
    MAX_PARTS,
    MAX_STRIPE,
    MAX_TOKEN_BODY,
    ORDER_BYTES,
    RUN_BYTES,
    SIGNATURE_BYTES,
    TOKEN_BYTES,
)
from isocast.wire.orders import order_fault
from isocast.wire.packets import (
    DIGEST_BYTES,
    SHORT_DIGEST_BYTES,
    ControlEntry,
    ControlKind,
    Disclosure,
    Grant,
    Run,
    Token,
    TokenPart,
    digest_of,
)
from isocast.wire.signing import signature_fault

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["decode_token_body", "join_parts", "split_token", "token_body", "token_bytes", "token_digest", "token_fault"]

_FIXED = Struct("<IIQQqQQQ16s16s32sHHHBB")
_RUN = Struct("<QQI32s")
_GRANT = Struct("<QI")
_CONTROL = Struct("<HHQ")
_DISCLOSURES = Struct("<H")
_DISCLOSURE = Struct("<QQ32s")

_WIDE_STEPS = 1
"""Flag: the interleave's values take two bytes each."""
_DISCLOSES = 2
"""Flag: disclosures follow the control entries."""
_IS_ORDERED = 0x8000
"""In the kind of a control entry: an order stands behind its bytes."""
_BYTE = 256


def token_body(token: Token) -> bytes:
    """The canonical bytes of the token's content; computed once.

    Raises LocalProtocolError for a token that the wire could not carry.
    """
    body = token._body  # noqa: SLF001  the cache is there for this module
    if body is None:
        fault = token_fault(token)
        if fault is not None:
            raise LocalProtocolError(fault)
        try:
            body = token._body = _written(token)  # noqa: SLF001
        except (error, ValueError) as reason:
            raise LocalProtocolError(f"token {token.token_number}: {reason}") from reason
    return body


def token_bytes(token: Token) -> bytes:
    """Body and signature: what travels, and what a log keeps."""
    return token_body(token) + token.signature


def token_digest(token: Token) -> bytes:
    """The chained digest: of this token and, through `prev_digest`, of all before it; computed once."""
    digest = token._digest  # noqa: SLF001
    if digest is None:
        digest = token._digest = digest_of(token_body(token))  # noqa: SLF001
    return digest


def decode_token_body(stripe: int, raw: bytes) -> Token:
    """The token that body and signature spell; body and digest are remembered in it."""
    try:
        token, end = _read(stripe, raw)
    except (error, IndexError, ValueError) as reason:
        raise RemoteProtocolError(f"token body: {reason}") from reason
    fault = token_fault(token)
    if fault is not None:
        raise RemoteProtocolError(fault)
    body = raw[:end]
    token._body = body  # noqa: SLF001
    token._digest = digest_of(body)  # noqa: SLF001
    return token


def split_token(token: Token, limit: int = MAX_PART_BODY) -> tuple[TokenPart, ...]:
    """The token's body and signature in pieces of at most `limit` bytes, in order; one piece when it is short."""
    body = token_bytes(token)
    parts = -(-len(body) // limit)
    if parts > MAX_PARTS:
        raise LocalProtocolError(f"token {token.token_number}: {parts} parts, more than {MAX_PARTS}")
    return tuple(
        TokenPart(
            token.stripe,
            token.epoch,
            token.sender,
            token.token_number,
            part,
            parts,
            body[part * limit : (part + 1) * limit],
        )
        for part in range(parts)
    )


def join_parts(parts: Sequence[TokenPart]) -> Token:
    """The token whose parts these are, all of them, in any order."""
    if not parts:
        raise RemoteProtocolError("a token of no parts")
    first = parts[0]
    count = first.parts
    if not 0 < count <= MAX_PARTS or len(parts) != count:
        raise RemoteProtocolError(f"{len(parts)} of {count} parts")
    pieces: list[bytes] = [b""] * count
    for part in parts:
        if part[:4] != first[:4] or part.parts != count:
            raise RemoteProtocolError("parts of different tokens")
        if not 0 <= part.part < count or pieces[part.part] or not part.body:
            raise RemoteProtocolError(f"part {part.part} of {count} is empty, repeated or beyond the end")
        pieces[part.part] = part.body
    token = decode_token_body(first.stripe, b"".join(pieces))
    if (token.epoch, token.sender, token.token_number) != (first.epoch, first.sender, first.token_number):
        raise RemoteProtocolError("the parts spell another token than they name")
    return token


def token_fault(token: Token) -> str | None:
    """The rule of the wire that the token breaks, in words; None for a sound one."""
    runs = token.runs
    counts = [run.count for run in runs]
    messages = sum(counts)
    if messages > MAX_MESSAGES_PER_TOKEN:
        return f"token {token.token_number} acknowledges {messages} messages in {len(runs)} runs"
    if 0 in counts:
        return f"token {token.token_number} has a run of no messages"
    if len({run.source for run in runs}) != len(runs):
        return f"token {token.token_number} names a source twice"
    last = max([run.first + run.count for run in runs], default=0)
    if max(last, token.first_sequence + messages) > MAX_NUMBER:
        return f"token {token.token_number} counts beyond 64 bits"
    return _step_fault(token, counts) or _other_fault(token) or signature_fault(token.signature)


def _step_fault(token: Token, counts: list[int]) -> str | None:
    """The steps must use up every run exactly, so there are no more of them than messages."""
    if not token.interleave:
        return None
    left = counts.copy()
    try:
        for run, many in token.interleave:
            if many < 1:
                return f"token {token.token_number} has a step ({run}, {many})"
            left[run] -= many
    except IndexError:
        return f"token {token.token_number} has a step of a run that is not there"
    if any(left):
        return f"token {token.token_number}: the steps do not add up to the runs"
    return None


def _other_fault(token: Token) -> str | None:
    """Counts and lengths of everything but the runs."""
    if not 0 <= token.stripe <= MAX_STRIPE:
        return f"stripe {token.stripe}"
    grants, control = token.grants, token.control
    if len(grants) > MAX_GRANTS or len({grant.source for grant in grants}) != len(grants):
        return f"token {token.token_number} grants {len(grants)} windows, or two to one source"
    if len(control) > MAX_CONTROL_ENTRIES or max([len(entry.body) for entry in control], default=0) > MAX_CONTROL_BODY:
        return f"token {token.token_number} carries too much control"
    fault = next((fault for entry in control if (fault := order_fault(entry.order)) is not None), None)
    return _disclosure_fault(token) if fault is None and token.disclosures else fault


def _disclosure_fault(token: Token) -> str | None:
    """Each message once, in one order, so that a token has one spelling."""
    places = [(source, number) for source, number, _ in token.disclosures]
    if len(places) > MAX_DISCLOSURES or places != sorted(set(places)):
        return f"token {token.token_number} discloses {len(places)} keys, some twice or out of order"
    # In order, so a source with too many has one so many places behind its first.
    if any(one[0] == other[0] for one, other in zip(places, places[MAX_LINKS:], strict=False)):
        return f"token {token.token_number} discloses more than {MAX_LINKS} keys of one source"
    if any(len(key) != LINK_BYTES for _, _, key in token.disclosures):
        return f"token {token.token_number} discloses a key that is not of {LINK_BYTES} bytes"
    return None


def _written(token: Token) -> bytes:
    """The bytes of a sound token."""
    digests = (token.prev_digest, *[run.digest for run in token.runs])
    if {len(digest) for digest in digests} != {DIGEST_BYTES}:
        raise LocalProtocolError(f"token {token.token_number}: a digest is not of {DIGEST_BYTES} bytes")
    if {len(token.commit), len(token.reveal)} != {SHORT_DIGEST_BYTES}:
        raise LocalProtocolError(f"token {token.token_number}: a nonce is not of {SHORT_DIGEST_BYTES} bytes")
    flat = [value for step in token.interleave for value in step]
    wide = bool(flat) and max(flat) >= _BYTE
    pieces = [
        _FIXED.pack(
            *token.epoch,
            token.sender,
            token.token_number,
            token.instant,
            token.first_sequence,
            token.stable,
            token.secstable,
            token.commit,
            token.reveal,
            token.prev_digest,
            len(token.runs),
            len(token.interleave),
            len(token.grants),
            len(token.control),
            (_WIDE_STEPS if wide else 0) | (_DISCLOSES if token.disclosures else 0),
        )
    ]
    pieces += [_RUN.pack(*run) for run in token.runs]
    pieces.append(pack_values(f"<{len(flat)}H", *flat) if wide else bytes(flat))
    pieces += [_GRANT.pack(*grant) for grant in token.grants]
    for kind, subject, entry, order in token.control:
        pieces += (_CONTROL.pack(kind | _IS_ORDERED if order else kind, len(entry), subject), entry, order)
    if token.disclosures:
        pieces.append(_DISCLOSURES.pack(len(token.disclosures)))
        pieces += [_DISCLOSURE.pack(*disclosure) for disclosure in token.disclosures]
    return b"".join(pieces)


def _read(stripe: int, body: bytes) -> tuple[Token, int]:
    """The token that the bytes spell, and where the body ends; counts are believed only as far as there are bytes."""
    if not TOKEN_BYTES <= len(body) <= MAX_TOKEN_BODY + SIGNATURE_BYTES:
        raise RemoteProtocolError(f"token body of {len(body)} bytes")
    (
        number,
        server,
        sender,
        token_number,
        instant,
        first_sequence,
        stable,
        secstable,
        commit,
        reveal,
        prev_digest,
        run_count,
        step_count,
        grant_count,
        control_count,
        flags,
    ) = _FIXED.unpack_from(body)
    if flags & ~(_WIDE_STEPS | _DISCLOSES):
        raise RemoteProtocolError(f"token body: unknown flags {flags:#x}")
    steps_at = TOKEN_BYTES + run_count * RUN_BYTES
    runs = tuple(map(Run._make, _RUN.iter_unpack(body[TOKEN_BYTES:steps_at])))
    interleave, grants_at = _read_steps(body, steps_at, step_count, wide=bool(flags & _WIDE_STEPS))
    control_at = grants_at + grant_count * GRANT_BYTES
    grants = tuple(map(Grant._make, _GRANT.iter_unpack(body[grants_at:control_at])))
    control, end = _read_control(body, control_at, control_count)
    disclosures: tuple[Disclosure, ...] = ()
    if flags & _DISCLOSES:
        disclosures, end = _read_disclosures(body, end)
    if len(body) not in (end, end + SIGNATURE_BYTES):
        raise RemoteProtocolError(f"token body of {len(body)} bytes, {end} expected")
    token = Token(
        stripe,
        Epoch(number, server),
        sender,
        token_number,
        instant,
        first_sequence,
        runs,
        interleave,
        control,
        commit,
        reveal,
        stable,
        secstable,
        grants,
        prev_digest,
        body[end:],
        disclosures,
    )
    return token, end


def _read_steps(body: bytes, at: int, count: int, *, wide: bool) -> tuple[tuple[tuple[int, int], ...], int]:
    """The interleave from offset `at`, and where it ends."""
    if wide:
        flat: Sequence[int] = unpack_from(f"<{2 * count}H", body, at)
        if not flat or max(flat) < _BYTE:
            raise RemoteProtocolError("token body: wide steps for narrow values")
        end = at + 4 * count
    else:
        end = at + 2 * count
        flat = body[at:end]
    return tuple(zip(flat[::2], flat[1::2], strict=True)), end


def _read_disclosures(body: bytes, at: int) -> tuple[tuple[Disclosure, ...], int]:
    """The disclosures from offset `at`, and where they end; the flag says that there are some."""
    (count,) = _DISCLOSURES.unpack_from(body, at)
    start = at + _DISCLOSURES.size
    end = start + count * DISCLOSURE_BYTES
    if not count:
        raise RemoteProtocolError("token body: the flag of disclosures, and none")
    return tuple(map(Disclosure._make, _DISCLOSURE.iter_unpack(body[start:end]))), end


def _read_control(body: bytes, at: int, count: int) -> tuple[tuple[ControlEntry, ...], int]:
    """The control entries from offset `at`, and where they end."""
    entries: list[ControlEntry] = []
    for _ in range(count):
        kind, length, subject = _CONTROL.unpack_from(body, at)
        at += CONTROL_BYTES
        order_at = at + length
        end = order_at + (ORDER_BYTES if kind & _IS_ORDERED else 0)
        found = ControlKind(kind & ~_IS_ORDERED)
        entries.append(ControlEntry(found, subject, body[at:order_at], body[order_at:end]))
        at = end
    return tuple(entries), at
