"""One customer is stopped, or never reads: the others notice nothing, and it has everything in the end.

A market of real processes. A floor publishes all the time, more than a customer's sockets hold while it stands still.
Three times are compared: before the customer is stopped, while it is, and while it catches up.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from threading import Lock
from time import monotonic, time_ns

import numpy as np
import pytest
from tests.interop.ears import Ear, keys_of_a_receiver
from tests.interop.places import new_market, own_place
from tests.interop.released import ReleasedMessage, whole_journal
from tests.interop.stage import Floor, Stage
from tests.interop.stalls import Stalls

from isocast.runtime.client.listener import Listener
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.watch.status import NodeStatus
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventKind
from isocast.wire.codec import PacketKind, decode, peek_kind
from isocast.wire.events import EVENT_DTYPE, EVENTS_PER_PAYLOAD
from isocast.wire.packets import ReleasedPacket

NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "tokyo": {"role": "primary-receiver"},
    "nyse": {"role": "primary-source"},
    "xray": {"role": "reformation-server"},
    "archive": {"role": "retransmit-server", "lines": ["london", "paris"]},
    "bank": {"role": "customer", "lines": ["london", "paris"], "retransmit": ["archive"]},
    "fund": {"role": "customer", "lines": ["paris", "tokyo"], "retransmit": ["archive"]},
    "ticker": {"role": "customer", "lines": ["tokyo", "london"], "retransmit": ["archive"], "grade": "latest"},
    "desk": {
        "role": "customer",
        "lines": ["london", "tokyo"],
        "retransmit": ["archive"],
        "start": False,
        "http_port": 0,
    },
}
RECEIVERS = ("london", "paris", "tokyo")
OTHERS = (*RECEIVERS, "nyse", "xray", "archive", "fund", "ticker")
"""Everybody but the customer that is stopped."""
CUSTOMERS = ("fund", "ticker")
"""Customers among them."""

TIMING: dict[str, object] = {"profile": "ci", "detect": "50ms", "process": "200ms", "retries_max": 2}
SMALL_BUFFERS: dict[str, object] = {"receive_buffer": "768KiB"}
"""Some 900 messages: several of the market's tokens, so that a busy machine costs nobody anything, and half of what
comes in ten seconds."""
BEFORE_S = 3.0
INBOX = 150
"""Messages that a program may leave unread: less than two tokens of the market."""
PAST = 1_300
"""Messages. Up to 1,024 are asked for by datagram, and multicast to everybody."""
QUIET = (
    "fairness_faults_total",
    "late_releases_total",
    "suspicions_total",
    "reformations_total",
    "nacks_sent_total",
    "kernel_drops_total",
    "gaps_seen_total",
    "messages_skipped_total",
)
"""Counters of the others that must not move because one customer stands still."""
LATE = ("fairness_faults_total", "late_releases_total", "suspicions_total", "nacks_sent_total")
"""Those that a machine with more to do than it can moves by itself."""
MISSING = ("gaps_seen_total", "messages_skipped_total")
"""Those of a customer both of whose lines were late: the retransmit server had the messages already, and said so."""
ASKED_FOR_A_TOKEN = 4
"""Requests: one or two ranges, and each again."""
NOISE = 3
"""By how much, even where nothing else says so: a processor may be taken away for a moment. A market that waits for its
customer moves them with every token."""
LATE_ALARMS = ("suspect-", "slow-stopped", "slow-lagging", "silent-")
"""What a node says for whom nothing was in time, itself included."""
MISSED = 2_700
"""Messages: a stopped customer's sockets hold the first third of them, and the rest are more than it may ask for by
datagram."""

pytestmark = pytest.mark.xdist_group("kill")


class Torrent(Floor):
    """Ten full messages at a time."""

    MESSAGES = 10

    async def publish(self, publisher: Publisher) -> None:
        self.asked += 1
        key = f"{self.name}/{self.asked}".encode()
        events = np.zeros(self.MESSAGES * EVENTS_PER_PAYLOAD, EVENT_DTYPE)
        events["kind"], events["floor"], events["symbol"] = EventKind.TRADE, b"XTST", b"ISO"
        events["id"] = events["time"] = self.asked * len(events) + np.arange(len(events))
        labels = await publisher.publish(events, key)
        payloads = np.split(events, len(labels))
        self.accepted += [(key, label, part.tobytes()) for label, part in zip(labels, payloads, strict=True)]


@dataclass(frozen=True)
class Moment:
    """Where the others stand."""

    at: int
    statuses: dict[str, NodeStatus]
    repairs: int
    """Messages that the retransmit server has multicast again."""

    def total(self, name: str, counter: str) -> float:
        return self.statuses[name].totals.get(counter, 0.0)


class Witness:
    """Hears the line of the retransmit server, as every customer does."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._keys = keys_of_a_receiver(stage.market).edge_ring()
        self._repairs = 0
        self._lock = Lock()
        self.stalls = Stalls()

    def heard(self, _: str, frame: bytes) -> None:
        if peek_kind(frame) is PacketKind.REL:
            packet = decode(frame, self._keys, self._stage.market.id)
            with self._lock:
                self._repairs += isinstance(packet, ReleasedPacket) and packet.count > 0

    def moment(self) -> Moment:
        statuses = self._stage.all_statuses(*OTHERS)
        with self._lock:
            return Moment(time_ns(), statuses, self._repairs)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Witness]]:
    with own_place() as place:
        market = new_market(tmp_path_factory.mktemp("still"), place, NODES, timing=TIMING, network=SMALL_BUFFERS)
        stage = Stage(market)
        stage.floors["nyse"] = Torrent("nyse", pause_s=0.05)
        witness = Witness(stage)
        with witness.stalls, Ear(market, place.address(200), [market.line_group("archive")], witness.heard), stage:
            stage.until_whole()
            yield stage, witness


@pytest.fixture
def market(stage: tuple[Stage, Witness]) -> Iterator[Stage]:
    """Messages flow to everybody."""
    there, _ = stage
    there.publish()
    until_tokens(there, 2)
    until_complete(there, "bank", "fund", "archive")
    yield there
    there.quiet()


@pytest.fixture
def witness(stage: tuple[Stage, Witness]) -> Witness:
    return stage[1]


def journal(stage: Stage, name: str) -> list[ReleasedMessage]:
    return whole_journal(stage.market.directory_of(name))


def until_complete(stage: Stage, *names: str) -> None:
    """They have everything that receivers have released by now."""
    wanted = max(len(watch.look()) for watch in stage.watches.values())
    stage.until(lambda: all(len(journal(stage, name)) >= wanted for name in names), f"{', '.join(names)} have it all")


def until_tokens(stage: Stage, count: int) -> None:
    """So many more tokens with messages are released."""
    watch = stage.watches["london"]
    seen = len({message.token_number for message in watch.look()})
    stage.until(lambda: len({message.token_number for message in watch.look()}) >= seen + count, f"{count} more tokens")


def run_for(stage: Stage, seconds: float) -> None:
    """The scenario's own time; whatever breaks meanwhile is told at once."""
    end = monotonic() + seconds
    stage.until(lambda: monotonic() >= end, "time passes", 2 * seconds)


# What must be true ------------------------------------------------------------------------------------------


def check_nothing_moved(since: Moment, until: Moment, stage: Stage, stalls: Stalls) -> None:
    excused = was_busy(since, until, stage, stalls)
    tokens, messages = late_on_lines(since, until, stage, stalls)
    allowed = {
        **dict.fromkeys(QUIET, 0),
        **dict.fromkeys(LATE, inf if excused else NOISE),
        "reformations_total": inf if excused else 0,
    }
    for name in OTHERS:
        may = allowed | (dict(zip(MISSING, (tokens, messages), strict=True)) if name in CUSTOMERS else {})
        moved = {
            counter: more
            for counter in QUIET
            if (more := until.total(name, counter) - since.total(name, counter)) > may[counter]
        }
        told = f"{tokens} tokens of {messages} messages may have been late on both lines"
        assert not moved, f"{name} noticed: {moved}; {told}\n{stage.story()}"
        assert excused or until.statuses[name].gauges.epoch == since.statuses[name].gauges.epoch
        new = {alarm.code for alarm in until.statuses[name].alarms} - {
            alarm.code for alarm in since.statuses[name].alarms
        }
        assert all("bank" in code or code.startswith(LATE_ALARMS) for code in new), f"{name} raised {new}"


def was_busy(since: Moment, until: Moment, stage: Stage, stalls: Stalls) -> bool:
    """Whether the machine had more to do than it can, or took a core away for long."""
    stalled = stalls.longest_ns(since.at, until.at) > stage.market.timing.process_ns // 2
    return stalled or os.getloadavg()[0] > (os.cpu_count() or 1)


def late_on_lines(since: Moment, until: Moment, stage: Stage, stalls: Stalls) -> tuple[int, int]:
    """Tokens, and the most messages in so many, that customers may have missed for a while because of the machine.

    Every customer hears two of the three receivers. If two released a token so much later than the third that a
    customer does not wait for them, it counts what the retransmit server has spoken of as missing. Journals tell which
    these were. A machine that is busy, or keeps a thread waiting for as long, may do the same to the way from there to
    the customer, which nobody writes down: that happens a few times, and not with every token.
    """
    waits_ns = stage.market.timing.late_ns
    ends: dict[int, dict[str, int]] = {}
    sizes: Counter[int] = Counter()
    for site in RECEIVERS:
        for message in journal(stage, site):
            if since.at - SECOND <= message.due < until.at:
                ends.setdefault(message.token_number, {})[site] = message.released_at
                sizes[message.token_number] += site == RECEIVERS[0]
    late = 0
    for by_site in ends.values():
        first, second, *_ = (*sorted(by_site.values()), until.at)
        late += second - first > waits_ns // 2
    busy = was_busy(since, until, stage, stalls) or stalls.longest_ns(since.at, until.at) > waits_ns
    tokens = late + (NOISE if busy else 0)
    return tokens, tokens * max(sizes.values(), default=0)


def check_journals(stage: Stage, *names: str) -> None:
    """All of these have the receivers' sequence, from the first on, and all that was promised is in it."""
    stage.until_released()
    until_complete(stage, *names)
    whole = journal(stage, "london")
    assert [message.sequence for message in whole] == list(range(1, len(whole) + 1))
    for name in (*RECEIVERS[1:], *names):
        found = journal(stage, name)
        assert [(m.sequence, m.payload) for m in found] == [(m.sequence, m.payload) for m in whole], name
    labels = {message.label for message in whole}
    assert labels >= {label for _, label, _ in stage.floors["nyse"].accepted}


def lags_ns(stage: Stage, name: str, since: int, until: int) -> list[int]:
    """From the first release of each message to its arrival at a customer, for what was due in a time."""
    released: dict[int, int] = {}
    for site in RECEIVERS:
        for message in journal(stage, site):
            released[message.sequence] = min(message.released_at, released.get(message.sequence, message.released_at))
    return [
        message.released_at - released[message.sequence]
        for message in journal(stage, name)
        if since <= message.due < until and message.sequence in released
    ]


def lateness_ns(stage: Stage, since: int, until: int) -> list[int]:
    """Of the receivers' releases."""
    return [m.released_at - m.due for name in RECEIVERS for m in journal(stage, name) if since <= m.due < until]


def check_as_before(what: str, before: list[int], after: list[int]) -> None:
    """A busy machine moves a median by some tens of milliseconds; a market that waits for somebody, by hundreds."""
    assert before, what
    assert after, what
    print(f"{what}: median {median(before) / 1e6:.2f} ms before, {median(after) / 1e6:.2f} ms then")  # noqa: T201
    assert median(after) < median(before) + 100 * MILLISECOND, what


def log_events(stage: Stage, name: str) -> list[dict[str, object]]:
    log = Path(stage.market.file).parent / "logs" / f"{name}.log"
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]


def check_asked_nobody(since: Moment, until: Moment, stage: Stage, stalls: Stalls) -> None:
    """The other customers had nothing to ask for, and heard no repairs of what somebody else had lost."""
    tokens, messages = late_on_lines(since, until, stage, stalls)
    for name in CUSTOMERS:
        asked = [moment.statuses[name].packets_sent.get("direct RXREQ", 0) for moment in (since, until)]
        assert asked[1] - asked[0] <= NOISE + tokens * ASKED_FOR_A_TOKEN, name
    repairs = until.repairs - since.repairs
    assert repairs <= NOISE + messages, "of what one of them had not heard in time; the bank lacks hundreds"


def check_all_as_before(stage: Stage, begin: Moment, stopped: Moment, *later: Moment) -> None:
    """Releases, and the way to another customer, took as long in each later span as in the first."""
    punctual = lateness_ns(stage, begin.at, stopped.at)
    near = lags_ns(stage, "fund", begin.at, stopped.at)
    for since, until in pairwise((stopped, *later)):
        check_as_before("releases late", punctual, lateness_ns(stage, since.at, until.at))
        check_as_before("fund behind the first release", near, lags_ns(stage, "fund", since.at, until.at))


@pytest.mark.parametrize(
    "seconds", [pytest.param(10.0, id="10s"), pytest.param(30.0, id="30s", marks=pytest.mark.long)]
)
def test_a_customer_that_is_stopped_is_noticed_by_nobody_but_itself(
    market: Stage, witness: Witness, seconds: float
) -> None:
    """Protocol §7: a slow customer never slows anybody else, and is named."""
    begin = witness.moment()
    dropped = market.all_statuses("bank")["bank"].totals["kernel_drops_total"]
    run_for(market, BEFORE_S)
    stopped = witness.moment()
    signalled(market, signal.SIGSTOP)
    had = len(journal(market, "bank"))
    run_for(market, seconds)
    market.until(lambda: len(journal(market, "london")) > had + MISSED, "more than its sockets hold")
    assert len(journal(market, "bank")) == had, "it is stopped"
    resumed = witness.moment()
    missed = len(journal(market, "london")) - had
    signalled(market, signal.SIGCONT)
    until_complete(market, "bank")
    until_tokens(market, 3)
    after = witness.moment()
    check_nothing_moved(begin, after, market, witness.stalls)
    check_asked_nobody(begin, after, market, witness.stalls)
    bank = market.all_statuses("bank")["bank"]
    check_bank(market, bank, busy=was_busy(begin, after, market, witness.stalls))
    assert bank.totals["kernel_drops_total"] > dropped, "its sockets were full, so it had to fetch"
    assert after.total("archive", "ranges_served_total") > resumed.total("archive", "ranges_served_total")
    market.quiet()
    check_journals(market, "bank", "fund", "archive")
    print(f"it missed {missed} messages")  # noqa: T201
    check_all_as_before(market, begin, stopped, resumed, after)


def signalled(stage: Stage, number: signal.Signals) -> None:
    """The process of the bank has got it."""
    assert stage.supervisor is not None
    stat = Path(f"/proc/{stage.supervisor.children['bank'].pid}/stat")
    stage.supervisor.kill("bank", number)
    wanted = number is signal.SIGSTOP
    stage.until(lambda: (stat.read_text().rpartition(")")[2].split()[0] == "T") == wanted, number.name)


def check_bank(stage: Stage, bank: NodeStatus, *, busy: bool) -> None:
    """It has named itself and nobody else, unless the machine was busy, and says that it is well; nothing is lost."""
    alarms = {alarm.code: alarm for alarm in bank.alarms}
    assert all(code.startswith(LATE_ALARMS if busy else "slow-") for code in alarms), alarms
    assert "bank is slow (stopped)" in alarms["slow-stopped"].text
    stage.until(lambda: stage.all_statuses("bank")["bank"].gauges.sequence_gaps == 0, "the bank lacks nothing")
    assert bank.totals["messages_skipped_total"] == 0
    assert "stopped" in [event["reason"] for event in log_events(stage, "bank") if event["event"] == "caught up"]


@pytest.mark.long
def test_a_program_that_never_reads_is_noticed_by_nobody_but_itself(market: Stage, witness: Witness) -> None:
    """It rests when its inbox is full, and has everything once it reads again."""
    begin = witness.moment()
    run_for(market, BEFORE_S)
    market.until(lambda: len(journal(market, "london")) > PAST, "there is a past to fetch")
    opened = witness.moment()
    listener = Listener(market.market, "desk", start="beginning", inbox_messages=INBOX)
    market.call(listener.open())
    try:
        market.until(lambda: "slow-reader" in {alarm.code for alarm in listener.alarms.list()}, "it names itself")
        until_tokens(market, 6)
        resting = witness.moment()
        market.quiet()
        market.until_released()
        wanted = len(journal(market, "london"))
        assert wanted > 2 * INBOX
        read = market.call(read_until(listener, wanted))
    finally:
        market.call(listener.close())
    after = witness.moment()
    assert read == [(message.sequence, message.payload) for message in journal(market, "london")]
    check_nothing_moved(begin, after, market, witness.stalls)
    check_asked_nobody(begin, after, market, witness.stalls)
    check_journals(market, "bank", "fund", "archive")
    check_all_as_before(market, begin, opened, resting)


async def read_until(listener: Listener, last: int) -> list[tuple[int, bytes]]:
    """Everything up to a sequence, message by message."""
    found: list[tuple[int, bytes]] = []
    async for batch in listener:
        assert batch.first_sequence == len(found) + 1
        sequences = range(batch.first_sequence, batch.last_sequence + 1)
        found += [(sequence, batch.events[batch.sequences == sequence].tobytes()) for sequence in sequences]
        if batch.last_sequence >= last:
            break
    return found
