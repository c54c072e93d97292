"""The session as a machine: its law under anything that arrives, and both sides through any loss."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.accounts.fake_desk import START_NS
from tests.runtime.accounts.fix.test_messages import ALMOST
from tests.runtime.accounts.fix.transcripts import OURS, THEIRS, framed

from isocast.runtime.accounts.fix.messages import Message, decode
from isocast.runtime.accounts.fix.session import (
    WAITING_MAX,
    Close,
    Deliver,
    Effect,
    Forget,
    Keep,
    Resend,
    Send,
    Session,
    logon_fault,
)

SECOND = 1_000_000_000
ORDER = "11=ID|38=100|40=1|54=1|55=XISO|60=20231114-22:13:20"


def parsed(line: str, now: int = START_NS) -> Message:
    message = decode(framed(line, now=now))
    assert message is not None
    return message


def begun(next_in: int = 1, next_out: int = 1, heartbeat: int = 30) -> Session:
    session = Session(OURS, THEIRS, next_in, next_out)
    session.log_on(parsed(f"35=A|34={next_in}|98=0|108={heartbeat}"), START_NS)
    return session


def sent(effects: Sequence[Effect]) -> list[Message]:
    messages = [decode(effect.frame) for effect in effects if isinstance(effect, Send)]
    assert None not in messages
    return [message for message in messages if message is not None]


STEPS = st.one_of(
    st.tuples(
        st.just("message"),
        st.sampled_from(["0", "1|112=x", "2|7=1|16=0", "2|7=3|16=2", "3|45=1", "4|36=9", "4|36=5|123=Y", "5", "8|37=1"])
        | st.sampled_from(["A|98=0|108=30", "A|98=0|108=5|141=Y", f"D|{ORDER}", "D|11=ID", "*", "0|999=x", "V|262=1"]),
        st.integers(-3, 6),
        st.sampled_from(["", "|43=Y|122={T}", "|43=Y", "|97=Y", "|49=WT", "|52=20000101-00:00:00", "|8=FIX.4.2"]),
    ),
    st.tuples(st.just("bytes"), ALMOST, st.just(0), st.just("")),
    st.tuples(st.just("time"), st.just(""), st.integers(0, 40), st.just("")),
    st.tuples(st.just("send"), st.just(""), st.just(0), st.just("")),
)


@given(st.lists(STEPS, max_size=60))
def test_the_law_of_the_numbers_holds_whatever_arrives(steps: list[tuple[str, str | bytes, int, str]]) -> None:
    """`next_out` is the number of the last new message plus one; both rise, but for a reset; all ends with Close."""
    session, now = begun(), START_NS
    spoken = 1
    kept: set[int] = set()
    for what, content, number, marks in steps:
        before = (session.next_in, session.next_out, session.is_open)
        if what == "message":
            kind, *body = str(content).split("|")
            line = "|".join([f"35={kind}", f"34={max(0, session.next_in + number)}", *marks.split("|")[1:], *body])
            effects = session.receive(framed(line.replace("{T}", "20231114-22:13:20"), now=now), now)
        elif what == "bytes":
            assert isinstance(content, bytes)
            effects = session.receive(content, now)
        elif what == "time":
            now += number * SECOND
            effects = session.tick(now)
        else:
            effects = session.send("8", [(58, "report")], now, report=1)
        for effect in effects:
            if isinstance(effect, Forget):
                spoken, kept = 0, set()
            elif isinstance(effect, Keep):
                kept.add(effect.number)
            elif isinstance(effect, Send):
                message = decode(effect.frame)
                assert message is not None
                assert message.number == spoken + 1
                spoken += 1
            elif isinstance(effect, Resend):
                assert 1 <= effect.first <= effect.last < session.next_out
        assert session.next_out == spoken + 1
        if not any(isinstance(effect, Forget) for effect in effects):
            assert (session.next_in, session.next_out) >= before[:2]
            assert session.next_in >= before[0]
        assert len(session._waiting) <= WAITING_MAX  # noqa: SLF001 - the bound is the claim.
        assert any(isinstance(effect, Close) for effect in effects) == (before[2] and not session.is_open)
        if not before[2]:
            assert effects == ()


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 45), st.integers(0, 45))
def test_a_resend_is_what_was_sent_and_fills_the_rest(kinds: list[int], first: int, last: int) -> None:
    session = begun()
    kept: list[tuple[int, bytes]] = []
    for turn, kind in enumerate(kinds):
        now = START_NS + turn * SECOND
        if kind:
            effects = session.send("8", [(58, f"report {turn}")], now)
            kept += [(effect.number, effect.frame) for effect in effects if isinstance(effect, Keep)]
        else:
            session.receive(framed(f"35=1|34={session.next_in}|112=x", now=now), now)
    later = START_NS + 60 * SECOND
    asked = session.receive(framed(f"35=2|34={session.next_in}|7={first}|16={last}", now=later), later)
    wanted = [effect for effect in asked if isinstance(effect, Resend)]
    newest = session.next_out - 1
    end = newest if last == 0 else min(last, newest)
    if first > end:
        assert wanted == []
        return
    assert wanted == [Resend(first, end)]
    there = [(number, frame) for number, frame in kept if first <= number <= end]
    halves = there[: len(there) // 2], there[len(there) // 2 :]  # In two pages.
    position, effects_1 = session.resent(first, halves[0], later)
    position, effects_2 = session.resent(position, halves[1], later)
    messages = sent([*effects_1, *effects_2, *session.gap_filled(position, end + 1, later)])
    covered = []
    for message in messages:
        assert message.first[43] == "Y"
        if message.kind == "4":
            covered += list(range(message.number, int(message.first[36])))
        else:
            original = decode(dict(kept)[message.number])
            assert original is not None
            assert message.first[122] == original.first[52]
            assert message.fields[9:-1] == original.fields[7:-1]
            covered.append(message.number)
    assert covered == list(range(first, end + 1))
    assert not any(one.kind == other.kind == "4" for one, other in pairwise(messages))
    assert session.next_out == newest + 1


def test_what_waits_beyond_the_bound_is_asked_for_again() -> None:
    session = begun()
    effects: list[Effect] = []
    for number in range(3, WAITING_MAX + 10):
        effects += session.receive(framed(f"35=0|34={number}"), START_NS)
    assert [message.kind for message in sent(effects)] == ["2"]
    filled = session.receive(framed("35=4|34=2|43=Y|122=20231114-22:13:20|36=3|123=Y"), START_NS)
    assert filled == ()
    assert session.next_in == WAITING_MAX + 3
    again = sent(session.receive(framed(f"35=0|34={WAITING_MAX + 10}"), START_NS))
    assert [(message.kind, message.first[7]) for message in again] == [("2", str(WAITING_MAX + 3))]


def test_a_deadline_is_never_in_the_past_after_a_tick() -> None:
    session, now = begun(heartbeat=10), START_NS
    seen: list[str] = []
    while session.is_open:
        deadline = session.next_deadline()
        assert deadline is not None
        assert deadline > now or not seen
        now = deadline
        seen += [message.kind for message in sent(session.tick(now))]
    assert seen == ["0", "1"]
    assert now == START_NS + 24 * SECOND
    assert session.next_deadline() is None


def test_no_heartbeat_while_a_test_is_outstanding_whenever_it_is_woken() -> None:
    session = begun(heartbeat=10)
    assert [message.kind for message in sent(session.tick(START_NS + 12 * SECOND))] == ["1"]
    assert session.tick(START_NS + 23 * SECOND) == ()
    session.receive(framed("35=0|34=2|112=TEST", now=START_NS + 23 * SECOND), START_NS + 23 * SECOND)
    assert [message.kind for message in sent(session.tick(START_NS + 23 * SECOND))] == ["0"]


def test_a_slow_reader_that_took_something_is_alive() -> None:
    session, now = begun(heartbeat=10), START_NS + 23 * SECOND
    session.took(now)
    assert not any(isinstance(effect, Close) for effect in session.tick(now + 2 * SECOND))
    late = now + 24 * SECOND
    assert [type(effect) for effect in session.tick(late)] == [Close]


@pytest.mark.parametrize(
    "line,reason",
    [
        ("35=A|34=1|98=0|108=30", None),
        ("35=A|34=1|98=0", "Required tag missing (108)"),
        ("35=A|34=1|98=1|108=30", "98"),
        ("35=A|34=1|98=0|108=3601", "108"),
        ("35=A|34=1|56=X|98=0|108=30", "TargetCompID"),
        ("35=A|34=1|52=20231114-22:11:19|98=0|108=30", "120 s"),
        ("8=FIX.4.2|35=A|34=1|98=0|108=30", "not FIX.4.4"),
        ("35=0|34=1", "no Logon"),
    ],
)
def test_a_first_message_is_a_logon_or_it_is_named_why_not(line: str, reason: str | None) -> None:
    fault = logon_fault(parsed(line), OURS, START_NS)
    assert (fault is None) if reason is None else (fault is not None and reason in fault)


def test_no_first_message_at_all() -> None:
    assert logon_fault(None, OURS, START_NS) == "the first message is garbled"


# ---- both sides, through any loss


class Side:
    """A session that keeps what it must, as a driver does, and can be begun again from it."""

    def __init__(self, ours: str, theirs: str) -> None:
        self.names = (ours, theirs)
        self.kept: dict[int, bytes] = {}
        self.numbers = (1, 1)
        self.heard: list[str] = []
        self.session = Session(ours, theirs)

    def perform(self, effects: Sequence[Effect]) -> list[bytes]:
        """What is sent; all that must last is written first."""
        out: list[bytes] = []
        for effect in effects:
            if isinstance(effect, Keep):
                self.kept[effect.number] = effect.frame
            elif isinstance(effect, Send):
                out.append(effect.frame)
            elif isinstance(effect, Deliver):
                self.heard.append(effect.message.first[11])
            elif isinstance(effect, Resend):
                there = sorted((number, frame) for number, frame in self.kept.items())
                there = [(number, frame) for number, frame in there if effect.first <= number <= effect.last]
                position, again = self.session.resent(effect.first, there, START_NS)
                again += self.session.gap_filled(position, effect.last + 1, START_NS)
                out += [sent.frame for sent in again if isinstance(sent, Send)]
        self.numbers = (self.session.next_in, self.session.next_out)
        return out

    def restart(self) -> None:
        self.session = Session(*self.names, *self.numbers)


@given(st.data())
def test_everything_is_heard_once_and_in_order_through_any_loss(data: st.DataObject) -> None:
    """Both sides send orders; connections are cut with any number of bytes under way in either direction."""
    left, right = Side("L", "R"), Side("R", "L")
    said: dict[str, list[str]] = {"L": [], "R": []}
    is_on = False
    ways: dict[str, list[bytes]] = {"L": [], "R": []}

    def connect() -> None:
        for side in (left, right):
            side.restart()
            side.session.is_open = True
            ways[side.names[0]] = []
        # L sends a Logon of its own; R takes it as a server does.
        number = left.session.next_out
        logon = framed(f"35=A|34={number}|49=L|56=R|98=0|108=0")
        left.session.next_out += 1
        left.perform(())
        message = decode(logon)
        assert message is not None
        for frame in right.perform(right.session.log_on(message, START_NS)):
            ways["R"].append(frame)

    def deliver(name: str) -> None:
        frame = ways[name].pop(0)
        side = right if name == "L" else left
        message = decode(frame)
        assert message is not None
        if side is left and message.kind == "A":  # An initiator does not answer a Logon.
            before = side.session.next_in
            if message.number == before:
                side.session.next_in += 1
                side.perform(())
                return
            gap = side.session
            gap._too_high(message, START_NS)  # noqa: SLF001 - what an initiator does with it.
            ways[side.names[0]] += side.perform(gap._taken())  # noqa: SLF001
            return
        ways[side.names[0]] += side.perform(side.session.receive(frame, START_NS))

    steps = data.draw(st.lists(st.sampled_from(["send L", "send R", "pass L", "pass R", "cut"]), max_size=80))
    for step in [*steps, "cut"]:
        if not is_on:
            connect()
            is_on = True
        what, _, name = step.partition(" ")
        if what == "send":
            side = left if name == "L" else right
            label = f"{name}{len(said[name])}"
            body = [(11, label), (38, "1"), (40, "1"), (54, "1"), (55, "X"), (60, "20231114-22:13:20")]
            said[name].append(label)
            ways[name] += side.perform(side.session.send("D", body, START_NS))
        elif what == "pass" and ways[name]:
            deliver(name)
        elif what == "cut":
            is_on = False
    connect()
    _settle(ways, deliver, (left, right))
    assert right.heard == said["L"]
    assert left.heard == said["R"]


def _settle(ways: dict[str, list[bytes]], deliver: object, sides: tuple[Side, Side]) -> None:
    """All that is under way arrives; a test request on each side shows the last gap."""
    assert callable(deliver)
    for _ in range(6):
        while any(ways.values()):
            for name in ("L", "R"):
                if ways[name]:
                    deliver(name)
        for side in sides:
            assert side.session.is_open
            side.session._say("1", [(112, "x")], START_NS)  # noqa: SLF001 - as a deadline would.
            ways[side.names[0]] += side.perform(side.session._taken())  # noqa: SLF001
    while any(ways.values()):
        for name in ("L", "R"):
            if ways[name]:
                deliver(name)
