"""Plans as files, and the durable note of which token put which into force.

A plan reaches receivers as a file and comes into force by an entry in a token, which names it by its digest. The
receiver notes entries of released tokens, before it journals anything of these tokens: so whoever reads the journal
finds the note, whenever he starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from isocast.feeds.mold import HEADER_BYTES
from isocast.runtime.market.model import EdgeTable, Market, NodePlan
from isocast.runtime.net.sockets import Endpoint
from isocast.security.repairs import REPAIR_OVERHEAD
from isocast.striping.loads import budget_bytes
from isocast.striping.plan import EdgeStripe, StripePlan, read_plan
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.wire.packets import ControlEntry, ControlKind, digest_of

__all__ = [
    "IP_UDP",
    "PLAN_NOTES",
    "PlanFolder",
    "PlanNote",
    "PlanNotes",
    "check_cores",
    "edge_of",
    "groups_of",
    "load_plan",
    "numbers_max",
    "plan_name",
    "repair_budget",
    "repair_groups_of",
    "repair_room",
    "request_endpoint",
]


PLAN_NOTES = "stripe-plans"
"""In a receiver's directory."""
_BYTES_MAX = 64 << 20
_SUFFIXES = (".toml", ".json")
_ROW = Struct("<QqQQH62s16s")
"""token 8, its instant 8, first sequence 8, version 8, length of body 2, body 62, digest of the row 16: 112."""
_BODY_MAX = 62
_DIGEST = 16


def load_plan(path: Path) -> StripePlan:
    """The plan of a file; ConfigurationError with the reason."""
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise ConfigurationError(str(path), "file", f"is larger than {_BYTES_MAX:,} bytes: not a plan")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        why = reason.strerror if isinstance(reason, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(str(path), "file", f"cannot be read: {why}") from None
    return read_plan(text, str(path))


def plan_name(plan: StripePlan) -> str:
    """What a plan's file is called in the directory of plans."""
    return f"plan-{plan.version}-{plan.digest.hex()}.toml"


class PlanFolder:
    """The plans that are on this machine."""

    def __init__(self, edge: EdgeTable) -> None:
        """Nothing is read yet."""
        self._edge = edge
        self._known: dict[bytes, StripePlan] = {}
        self._looked_at: dict[Path, int] = {}

    def first(self) -> StripePlan:
        """The plan that the market began with."""
        plan = load_plan(self._edge.plan)
        self._known[plan.digest] = plan
        return plan

    def find(self, digest: bytes) -> StripePlan | None:
        """A plan by its digest; None while no file has it."""
        if digest not in self._known:
            for path in self._files():
                self._look_at(path)
        return self._known.get(digest)

    def all(self) -> list[StripePlan]:
        """Every plan here, the newest last; files that are no plans are passed over."""
        for path in [self._edge.plan, *self._files()]:
            self._look_at(path)
        return sorted(self._known.values(), key=lambda plan: plan.version)

    def _files(self) -> list[Path]:
        if not self._edge.plans.is_dir():
            return []
        return sorted([path for path in self._edge.plans.iterdir() if path.suffix in _SUFFIXES])

    def _look_at(self, path: Path) -> None:
        try:
            changed = path.stat().st_mtime_ns
            if self._looked_at.get(path) == changed:
                return
            self._looked_at[path] = changed
            plan = load_plan(path)
        except (OSError, ConfigurationError):
            return  # Perhaps somebody is writing it: it is looked at again when it has changed.
        self._known[plan.digest] = plan


class PlanNote(NamedTuple):
    """An entry of a token that announces a plan."""

    token_number: int
    instant: int
    first_sequence: int
    """Of the token; where it has no messages, of the next."""
    entry: ControlEntry


class PlanNotes:
    """The notes of one receiver, appended before anything rests on them."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist."""
        self._path = path
        self._read = 0
        self._last_token = 0

    @property
    def last_token(self) -> int:
        """Of the newest note that was read or written."""
        return self._last_token

    def append(self, note: PlanNote) -> None:
        """On the disk when this returns; a note that is there already is not written twice."""
        if note.token_number <= self._last_token:
            return
        body = note.entry.body
        row = _ROW.pack(
            note.token_number, note.instant, note.first_sequence, note.entry.subject,
            min(len(body), _BODY_MAX + 1), body[:_BODY_MAX], b"",
        )[:-_DIGEST]  # fmt: skip
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            whole = os.fstat(handle).st_size // _ROW.size * _ROW.size
            os.ftruncate(handle, whole)  # A row that a crash cut was never rested on.
            os.write(handle, row + digest_of(row))
            os.fsync(handle)
        finally:
            os.close(handle)
        self._last_token = note.token_number

    def read(self) -> Iterator[PlanNote]:
        """Notes that were not read yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                raw = file.read()
        except FileNotFoundError:
            return
        for at in range(0, len(raw) // _ROW.size * _ROW.size, _ROW.size):
            row = raw[at : at + _ROW.size]
            if digest_of(row[:-_DIGEST]) != row[-_DIGEST:]:
                raise JournalError(str(self._path), f"is damaged at byte {self._read}")
            token, instant, first, version, length, body, _ = _ROW.unpack(row)
            self._read += _ROW.size
            self._last_token = max(self._last_token, token)
            yield PlanNote(token, instant, first, ControlEntry(ControlKind.STRIPE_PLAN, version, body[:length]))


# ---- Where the edge is on the network: groups of narrow stripes and of their repairs, where requests go, what fits.


IP_UDP = 28
"""Bytes of headers around a datagram."""
_LONGEST = 2 + 44
"""The longest message with its length."""
_SHORTEST = 2 + 12
_DAY_S = 86_400
_LEAST = IP_UDP + REPAIR_OVERHEAD + HEADER_BYTES + _LONGEST
"""A repair of one message."""


def edge_of(market: Market) -> EdgeTable:
    """The market's narrow stripes; ConfigurationError if it has none."""
    if market.edge is None:
        raise ConfigurationError(market.file, "edge.plan", "must be given: without a plan there are no narrow stripes")
    return market.edge


def check_cores(market: Market, plan: StripePlan) -> None:
    """ConfigurationError for a plan that divides other core stripes than the market's."""
    lacking = [core for core in market.stripes if not plan.of_core(core)]
    if lacking:
        raise ConfigurationError(plan.file, "core", f"plans nothing for stripe {lacking[0]} of the market")
    strange = [core for core in plan.cores if core not in market.all_stripes]
    if strange:
        # Its symbols travel in another stripe, whose receivers would not carry them.
        listed = ", ".join(map(str, market.all_stripes))
        raise ConfigurationError(plan.file, "core", f"{strange[0]} is none of ring.stripes: {listed}")


def request_endpoint(market: Market, plan: NodePlan, core: int | None = None) -> Endpoint:
    """Where a receiver's edge, or a retransmit server, takes requests; `core`: that of its process of this stripe."""
    if core is not None and core != plan.stripe:
        whole = market.whole or market
        plan = next((one for one in whole.processes_of(plan.origin) if one.stripe == core), plan)
    return Endpoint(plan.address, edge_of(market).request_port + market.network.stripe_ports * plan.stripe)


def groups_of(market: Market, node: NodePlan, stripes: Iterable[EdgeStripe]) -> list[str]:
    """The groups in which one receiver sends some stripes."""
    return [edge_of(market).group(node.number, stripe.number) for stripe in stripes]


def repair_groups_of(market: Market, node: NodePlan, stripes: Iterable[EdgeStripe]) -> list[str]:
    """The groups in which one retransmit server repairs them."""
    return [edge_of(market).repair_group(node.number, stripe.number) for stripe in stripes]


def numbers_max(rate: int) -> int:
    """The highest number of a day that a stripe can reach: all its messages the shortest, with their lengths."""
    return rate * _DAY_S // (8 * _SHORTEST)


def repair_budget(market: Market, plan: StripePlan, stripe: int) -> int:
    """IP bytes of a stripe's repairs in any token period: a share of its own, and at least one message."""
    found = plan.by_number.get(stripe)
    rate = 0 if found is None else found.rate
    share = budget_bytes(rate, market.timing.token_period_ns) * edge_of(market).repair_share
    return max(int(share), _LEAST)


def repair_room(budget: int, most: int) -> int:
    """Bytes of messages in one repair of at most so many bytes."""
    return min(budget - IP_UDP - REPAIR_OVERHEAD - HEADER_BYTES, most)
