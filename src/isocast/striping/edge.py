"""The edge striper: the released sequence of a core stripe as packets of its narrow stripes (§4.4; protocol §7).

A pure function of the released sequence and the stripe plan: every receiver of the core stripe makes the same packets
with the same numbers at the same scheduled instants, whatever its own clock says and however its releases were cut. So
two lines carry the same number for the same message, a customer sees a gap, and any receiver can replace another.

A message is due at its token's instant + Δ_A, plus its place in the token over the release rate in steps of a
millisecond. Everything due at one instant is striped together. Behind the last message of a token nothing new comes for
a token period, so what waits then gets its instants up to there. A plan that an entry of token t announces is in force
from token t+1 on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.feeds.stripe_writer import are_sayable
from isocast.striping.directory import StripeDirectory
from isocast.striping.edge_queue import EdgePacket, EdgeQueue
from isocast.striping.edge_snapshot import StriperSnapshot
from isocast.striping.plan import Numbers, PlanNotice, StripePlan, read_plan_entry
from isocast.striping.rates import budget_bytes, rate_text
from isocast.striping.released import ReleasedPart
from isocast.striping.sizes import ITCH_SIZES, PACKET_BYTES, PacketSizes
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.instants import MILLISECOND
from isocast.terms.market import EventFlag, EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.limits import IP_UDP_BYTES
from isocast.wire.packets import ControlKind, short_digest_of
from isocast.wire.stripe_proofs import stripe_proof_bytes

__all__ = ["EdgeSettings", "EdgeStriper"]

_LINKED = np.uint16(0xFFFF & ~EventFlag.LINKED)
_in_time = attrgetter("due", "stripe", "number")

Sequences = npt.NDArray[np.uint64]
_Part: TypeAlias = tuple[int, EventArray, Sequences]


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """What all receivers of a market agree on beside the plan."""

    token_period_ns: int
    release_delay_ns: int
    release_rate: int = 0
    """Packets of the core in a millisecond; 0: all at once."""
    patience: int = 4
    """Token periods that what waits for a stripe may take before prices are conflated."""
    reserve_bytes: int = PACKET_BYTES
    """Of each token period's bytes, kept free for a heartbeat."""
    sizes: PacketSizes = ITCH_SIZES
    introduce_ns: int = 0
    """Stocks are introduced on their stripe, and again after so long; 0: never."""
    zone: str = "UTC"
    """Where it is midnight when all are introduced anew."""
    proof_ns: int = 0
    """Between two proofs of a stripe; 0: stripes are not proven."""
    seal_bytes: int = 0
    """Around each datagram of a stripe that is sealed."""

    def reserved(self, stripes: int) -> int:
        """Bytes of each token period that packets leave free: for a heartbeat, and a share of the next PROOF."""
        beat = self.reserve_bytes + self.seal_bytes
        if not self.proof_ns:
            return beat
        return beat + -(-self.proof_bytes(stripes) * self.token_period_ns // max(self.token_period_ns, self.proof_ns))

    def proof_bytes(self, stripes: int) -> int:
        """IP bytes of a PROOF of one packet, beside those of so many stripes."""
        return IP_UDP_BYTES + self.seal_bytes + stripe_proof_bytes(1, stripes.bit_length())

    @property
    def digest(self) -> bytes:
        """16 bytes: receivers whose digests differ would not send the same."""
        own = (self.token_period_ns, self.release_delay_ns, self.release_rate, self.patience, self.reserve_bytes)
        if self.introduce_ns:
            own += (self.introduce_ns, self.zone)  # type: ignore[assignment]
        if self.proof_ns or self.seal_bytes:
            own += (self.proof_ns, self.seal_bytes)  # type: ignore[assignment]
        sizes = (self.sizes.packet_bytes, self.sizes.mtu, *self.sizes.kind_bytes, *self.sizes.kind_numbers)
        return short_digest_of(repr((own, sizes)).encode())


@dataclass(slots=True)
class _Step:
    """Messages that are due at one instant, as far as they came."""

    due: int = 0
    events: list[EventArray] = field(default_factory=list)
    sequences: list[Sequences] = field(default_factory=list)


class EdgeStriper:
    """The narrow stripes of one core stripe."""

    queue_class: type[EdgeQueue] = EdgeQueue

    def __init__(self, plan: StripePlan, core: int, settings: EdgeSettings) -> None:
        """Begin with a plan, before any message; ConfigurationError if a stripe is too narrow for one packet."""
        self.core = core
        self.not_carried = 0
        """Events of kinds that stripes do not carry."""
        self._settings = settings
        self._plans: dict[bytes, StripePlan] = {}
        self._queues: dict[int, EdgeQueue] = {}
        self._retired: dict[int, int] = {}
        """Next numbers of stripes that the plan has no more: should one return, its numbers go on."""
        self._announced: PlanNotice | None = None
        self._token, self._place, self._next_sequence = 0, 0, 1
        self._token_ended = True
        self._clock = 0
        self._step = _Step()
        self.directory = StripeDirectory(settings.introduce_ns, settings.zone) if settings.introduce_ns else None
        """Who was introduced, where stocks are."""
        self.plan = plan
        self.learn(plan)
        self._enter(plan)

    # ---- what can be asked

    @property
    def next_sequence(self) -> int:
        """The core sequence that comes next."""
        return self._next_sequence

    @property
    def token_number(self) -> int:
        """The token of what was taken last."""
        return self._token

    @property
    def next_numbers(self) -> dict[int, int]:
        """For each stripe the number that comes next: what a late joiner needs, with the plan's version."""
        return {number: queue.next_number for number, queue in self._queues.items()}

    @property
    def conflated(self) -> dict[int, dict[EventKind, int]]:
        """For each stripe, the events that were left out because a newer one of their key came."""
        return {number: dict(queue.conflated) for number, queue in self._queues.items()}

    @property
    def waiting(self) -> dict[int, int]:
        """For each stripe that is behind, the events that have no instant yet."""
        return {number: len(queue.events) for number, queue in self._queues.items() if len(queue.events)}

    # ---- what comes

    def learn(self, plan: StripePlan) -> None:
        """A plan that an entry may announce; it changes nothing by itself."""
        settings, stripes = self._settings, plan.of_core(self.core)
        reserve = settings.reserved(len(stripes))
        # What a packet needs beside what is kept free; and a PROOF, which may take more than was kept free for it.
        needed = max(
            settings.sizes.least_budget + reserve, settings.proof_bytes(len(stripes)) * bool(settings.proof_ns)
        )
        for stripe in stripes:
            if budget_bytes(stripe.rate, settings.token_period_ns) < needed:
                period = f"{self._settings.token_period_ns / MILLISECOND:g} ms"
                rule = (
                    f"{rate_text(stripe.rate)} are {budget_bytes(stripe.rate, self._settings.token_period_ns):,} bytes "
                    f"in a token period of {period}; one packet needs {needed}"
                )
                raise ConfigurationError(plan.file, f'stripe "{stripe.name}".rate', rule)
        plan.spare_of(self.core)
        self._plans[plan.digest] = plan

    def step(self, part: ReleasedPart) -> tuple[EdgePacket, ...]:
        """Messages that were released, in sequence; the packets that follow from them, in the order of time.

        LocalProtocolError, and nothing has changed, for a part that does not continue the sequence, and for a token
        that announces a plan which was not learned: learn it and give the part again.
        """
        self._insist_on_next(part)
        self._announced = self._announcement(part) or self._announced
        packets: list[EdgePacket] = []
        base = part.instant + self._settings.release_delay_ns
        for due, events, sequences in self._by_due(part, base):
            if self._step.events and due != self._step.due:
                packets += self._close_step()
            self._step.due = due
            self._step.events.append(events)
            self._step.sequences.append(sequences)
        self._token, self._place = part.token_number, part.place + len(part.counts)
        self._next_sequence = part.first_sequence + len(part.counts)
        self._token_ended = part.ends_token
        rate = self._settings.release_rate
        if part.ends_token or (rate and self._place % rate == 0):
            packets += self._close_step()
        if part.ends_token:
            packets += self._end_token(base + self._settings.token_period_ns)
        return tuple(sorted(packets, key=_in_time))

    def _insist_on_next(self, part: ReleasedPart) -> None:
        same = part.token_number == self._token and not self._token_ended and part.place == self._place
        following = part.token_number > self._token and self._token_ended and part.place == 0
        if not (same or following) or part.first_sequence != self._next_sequence:
            raise LocalProtocolError(
                f"token {part.token_number} from place {part.place}, sequence {part.first_sequence}, does not follow "
                f"token {self._token} up to place {self._place}, sequence {self._next_sequence - 1}"
            )
        if part.place + len(part.counts) > part.token_count or int(part.counts.sum()) != len(part.events):
            raise LocalProtocolError(f"a part of token {part.token_number} that contradicts itself")

    def _announcement(self, part: ReleasedPart) -> PlanNotice | None:
        """The newest plan that this token announces; one that is not newer than the plan in force is no news."""
        newest = None
        for entry in part.control:
            if entry.kind is ControlKind.STRIPE_PLAN and entry.subject > self.plan.version:
                notice = read_plan_entry(entry)
                if notice.digest not in self._plans:
                    raise LocalProtocolError(
                        f"token {part.token_number} announces stripe plan {notice.version} "
                        f"with digest {notice.digest.hex()}, which is not here"
                    )
                newest = notice if newest is None or notice.version > newest.version else newest
        return newest

    def _by_due(self, part: ReleasedPart, base: int) -> Iterable[tuple[int, EventArray, Sequences]]:
        """The part's events and their sequences, cut where the due instant changes."""
        count = len(part.counts)
        sequences = np.repeat(np.arange(count, dtype=np.uint64) + np.uint64(part.first_sequence), part.counts)
        rate = self._settings.release_rate
        if not rate or part.place // rate == (part.place + max(count, 1) - 1) // rate:
            if len(part.events):
                yield base + (part.place // rate * MILLISECOND if rate else 0), part.events, sequences
            return
        steps = np.repeat((part.place + np.arange(count)) // rate, part.counts)
        for step in np.unique(steps).tolist():
            start, stop = np.searchsorted(steps, [step, step + 1]).tolist()
            yield base + step * MILLISECOND, part.events[start:stop], sequences[start:stop]

    # ---- instants

    def _close_step(self) -> list[EdgePacket]:
        """Everything that is due at one instant is here: stripe it."""
        step, self._step = self._step, _Step()
        if not step.events:
            return []
        self._clock = at = max(self._clock, step.due)
        events = step.events[0] if len(step.events) == 1 else np.concatenate(step.events)
        sequences = step.sequences[0] if len(step.sequences) == 1 else np.concatenate(step.sequences)
        carried = self._settings.sizes.bytes_table[events["kind"]] > 0
        if self.directory is not None:
            carried &= are_sayable(events)
        if not carried.all():
            self.not_carried += int(np.count_nonzero(~carried))
            events, sequences = events[carried], sequences[carried]
        packets = []
        for number, own, own_sequences in self._introduced(self._split(events, sequences), at):
            packets += self._queues[number].push(own, own_sequences, at)
        return packets

    def _introduced(self, parts: Iterable[_Part], at: int) -> Iterable[_Part]:
        """The same with the introductions that each stripe lacks."""
        if self.directory is None:
            return parts
        return [(number, *self.directory.introduce(number, events, rows, at)) for number, events, rows in parts]

    def _split(self, events: EventArray, sequences: Sequences) -> Iterable[tuple[int, EventArray, Sequences]]:
        """For each stripe its events; an event of a whole floor is for all of them."""
        if not len(events):
            return
        numbers = self.plan.stripes_of(events["symbol"], self.core)
        floor_wide = np.flatnonzero(events["symbol"] == b"")
        broken = np.append((numbers[1:] != numbers[:-1]) | (sequences[1:] != sequences[:-1]), np.True_)
        broken &= (events["flags"] & int(EventFlag.LINKED)) > 0
        if broken.any():
            events = events.copy()
            events["flags"][broken] &= _LINKED
        if len(floor_wide):
            yield from self._with_floor_wide(events, sequences, numbers, floor_wide)
            return
        order = np.argsort(numbers, kind="stable")
        numbers, events, sequences = numbers[order], events[order], sequences[order]
        begins = np.flatnonzero(np.append(np.True_, numbers[1:] != numbers[:-1])).tolist()
        for start, stop in zip(begins, [*begins[1:], len(numbers)], strict=True):
            yield int(numbers[start]), events[start:stop], sequences[start:stop]

    def _with_floor_wide(
        self, events: EventArray, sequences: Sequences, numbers: Numbers, floor_wide: npt.NDArray[np.intp]
    ) -> Iterable[tuple[int, EventArray, Sequences]]:
        own = np.flatnonzero(events["symbol"] != b"")
        own = own[np.argsort(numbers[own], kind="stable")]
        stripes = np.fromiter(sorted(self._queues), np.uint32, len(self._queues))
        begins, ends = np.searchsorted(numbers[own], [stripes, stripes + np.uint32(1)])
        for number, start, stop in zip(stripes.tolist(), begins.tolist(), ends.tolist(), strict=True):
            chosen = np.sort(np.concatenate([own[start:stop], floor_wide]))
            yield number, events[chosen], sequences[chosen]

    def _end_token(self, end: int) -> list[EdgePacket]:
        """Nothing new comes before `end`: what waits gets its instants. Then an announced plan is in force."""
        packets = [packet for queue in self._queues.values() if len(queue.events) for packet in queue.leave_before(end)]
        if self._announced is not None:
            plan, self._announced = self._plans[self._announced.digest], None
            if plan.version > self.plan.version:
                self._clock = max(self._clock, end)
                if self.directory is not None:
                    self.directory.forget()
                self._enter(plan)
        return packets

    # ---- plans

    def _budget(self, rate: int, stripes: int) -> int:
        return budget_bytes(rate, self._settings.token_period_ns) - self._settings.reserved(stripes)

    def _enter(self, plan: StripePlan) -> None:
        """Follow a plan: numbers go on, and what waits for a symbol that moved waits on its new stripe, at the end."""
        before, self._queues, self.plan = self._queues, {}, plan
        settings, stripes = self._settings, plan.of_core(self.core)
        for stripe in stripes:
            queue = before.pop(stripe.number, None)
            if queue is None:
                queue = self.queue_class(
                    stripe.number, 0, settings.token_period_ns, settings.patience, settings.sizes,
                    next_number=self._retired.pop(stripe.number, 1),
                )  # fmt: skip
            queue.budget = self._budget(stripe.rate, len(stripes))
            self._queues[stripe.number] = queue
        moved: list[tuple[EventArray, Sequences]] = []
        for number, queue in self._queues.items():
            stays = plan.stripes_of(queue.events["symbol"], self.core) == number
            stays |= queue.events["symbol"] == b""
            if not stays.all():
                moved.append((queue.events[~stays], queue.sequences[~stays]))
                queue.events, queue.sequences = queue.events[stays], queue.sequences[stays]
        for number, queue in before.items():
            self._retired[number] = queue.next_number
            # The other stripes have what concerns a whole floor too.
            own = queue.events["symbol"] != b""
            moved.append((queue.events[own], queue.sequences[own]))
        self._move(moved)

    def _move(self, moved: list[tuple[EventArray, Sequences]]) -> None:
        if not moved:
            return
        events = np.concatenate([part for part, _ in moved])
        sequences = np.concatenate([part for _, part in moved])
        order = np.argsort(sequences, kind="stable")
        parts = self._split(events[order], sequences[order])
        for number, own, own_sequences in self._introduced(parts, self._clock):
            queue = self._queues[number]
            queue.events = np.concatenate([queue.events, own])
            queue.sequences = np.concatenate([queue.sequences, own_sequences])
            queue.clock = max(queue.clock, self._clock)

    # ---- state

    def snapshot(self) -> StriperSnapshot:
        """Everything that the future depends on, at any point of the sequence."""
        return StriperSnapshot(
            core=self.core,
            plan_version=self.plan.version,
            plan_digest=self.plan.digest,
            settings_digest=self._settings.digest,
            announced=self._announced,
            token_number=self._token,
            place=self._place,
            token_ended=self._token_ended,
            next_sequence=self._next_sequence,
            clock=self._clock,
            step_due=self._step.due,
            step_events=b"".join([events.tobytes() for events in self._step.events]),
            step_sequences=tuple(s for sequences in self._step.sequences for s in sequences.tolist()),
            queues=tuple(self._queues[number].state() for number in sorted(self._queues)),
            retired=tuple(sorted(self._retired.items())),
            introduced=b"" if self.directory is None else self.directory.state(),
        )

    def restore(self, snapshot: StriperSnapshot) -> None:
        """Go on where the snapshot was taken. Its plan must have been learned: LocalProtocolError if not."""
        plan = self._plans.get(snapshot.plan_digest)
        wanted = {stripe.number for stripe in plan.of_core(self.core)} if plan else set()
        if plan is None or snapshot.core != self.core:
            raise LocalProtocolError(
                f"a snapshot of core stripe {snapshot.core} with stripe plan {snapshot.plan_version}, which is not here"
            )
        if snapshot.settings_digest != self._settings.digest:
            raise LocalProtocolError("a snapshot that was taken with other settings of the edge")
        if {state.stripe for state in snapshot.queues} != wanted:
            raise LocalProtocolError("the stripes of a snapshot differ from those of its plan")
        self._queues, self._retired = {}, {}
        self._enter(plan)
        for state in snapshot.queues:
            self._queues[state.stripe].restore(state)
        self._retired = dict(snapshot.retired)
        self._announced = snapshot.announced
        self._token, self._place, self._token_ended = snapshot.token_number, snapshot.place, snapshot.token_ended
        self._next_sequence, self._clock = snapshot.next_sequence, snapshot.clock
        if self.directory is not None:
            self.directory.restore(snapshot.introduced, snapshot.clock)
        self._step = _Step(snapshot.step_due)
        if snapshot.step_events:
            self._step.events.append(np.frombuffer(snapshot.step_events, EVENT_DTYPE))
            self._step.sequences.append(np.array(snapshot.step_sequences, np.uint64))
