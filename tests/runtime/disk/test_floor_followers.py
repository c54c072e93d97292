"""One floor, however it is followed: from a receiver's journal, a line, a door, at a gateway, at a site, on Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.runtime.disk.journals import write
from tests.wire.journal_samples import PERIOD, block
from tests.wire.samples import KEYS

from isocast.floor.arbiter import Arbiter, Stepped, TokenReleased
from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Directory, Event, Order, Phase, Trade
from isocast.floor.following import FloorMessage
from isocast.floor.state import state_hash
from isocast.lake.transforms.floors import trade_rows
from isocast.runtime.accounts.floor_view import FloorView
from isocast.runtime.client.received import batch_of
from isocast.runtime.disk.floor_journal import JournalFloor
from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.journal_reader import JournalReader, block_bodies, blocks_of, packets_of, read_blocks
from isocast.terms.errors import JournalError
from isocast.terms.market import Side
from isocast.wire.codec import decode, encode
from isocast.wire.journal_blocks import view_block
from isocast.wire.opaque import OpaqueMessage, cut_opaque
from isocast.wire.packets import ReleasedPacket

CODE = "XISO"
SENDER = 3
CUSTOMER = 131_080
TOKENS = 30


def released(folder: Path, seed: int) -> Path:
    """A receiver's journal: in each token some messages of two gateways, each with orders of several accounts."""
    random, sequence, numbers = Random(seed), 1, 0
    blocks = []
    for token in range(1, TOKENS + 1):
        messages: list[list[Event]] = [[Directory("ISO", phase=Phase.OPEN)]] if token == 1 else []
        for gateway in random.choices((1, 2), k=random.randint(1, 4)):
            some: list[Event] = []
            for _ in range(random.randint(1, 4)):
                numbers += 1
                account = 10 * gateway + random.randint(0, 3)
                side, price = random.choice((Side.BUY, Side.SELL)), random.randint(98, 102)
                some.append(Order(account << 32 | numbers, account, "ISO", side, random.randint(1, 9), price))
            messages.append(some)
        payloads = [
            payload
            for some in messages
            for payload in cut_opaque([OpaqueMessage(floor_topic(CODE), encode_event(one)) for one in some], 1_200)
        ]
        blocks.append(replace(block(token, sequence, payloads), shuffle_key=random.randbytes(16)))
        sequence += len(payloads)
    write(folder, blocks)
    return folder


def computed(journal: Path) -> tuple[bytes, list[Trade]]:
    floor = JournalFloor(journal, CODE)
    trades = [trade for step in floor.steps() for trade in step.trades]
    return state_hash(floor.floor), trades


def computed_up_to(journal: Path, token: int) -> list[Trade]:
    return [trade for step in JournalFloor(journal, CODE).steps(token) for trade in step.trades]


def followed(packets: Iterable[ReleasedPacket]) -> tuple[bytes, list[Trade]]:
    """As a gateway hears it."""
    view, trades = FloorView(CODE), []
    messages = batch_of(list(packets), PERIOD, 0).messages()
    heard = [
        view.hear(one.token, one.instant_ns, FloorMessage(one.sequence, one.topic, one.payload, one.shuffle_key))
        for one in messages
    ]
    for outcome in filter(None, [*heard, view.finish()]):
        trades += [told for step in outcome.steps for told in step.reports if isinstance(told, Trade)]
    return state_hash(view.floor), trades


def on_the_line(journal: Path) -> list[ReleasedPacket]:
    packets = [decode(encode(one, KEYS), KEYS) for one in packets_of(read_blocks(journal), 0, SENDER, 1)]
    return [one for one in packets if isinstance(one, ReleasedPacket)]


def written(folder: Path, packets: list[ReleasedPacket]) -> Path:
    """A customer's journal of what a line brought, in bursts that know no tokens."""
    with Journal.open(folder, 0, CUSTOMER) as journal:
        for start in range(0, len(packets), 7):
            for one in blocks_of(packets[start : start + 7], journal.position, 10**18, PERIOD, 7):
                journal.append(one)
    return folder


@pytest.mark.parametrize("seed", range(3))
def test_whoever_follows_the_floor_has_the_same(seed: int, tmp_path: Path) -> None:
    journal = released(tmp_path / "receiver", seed)
    state, trades = computed(journal)
    assert len(trades) > TOKENS, "something has traded"

    line = on_the_line(journal)
    last = line[-1]
    later = last._replace(token_number=TOKENS + 1, sequence=last.sequence + 1, instant=last.instant + PERIOD)
    customer = written(tmp_path / "customer", [*line, later._replace(payload=b"")])
    assert computed(customer) == (state, trades), "a customer's journal"
    assert followed(line) == (state, trades), "a gateway by its line"

    bodies = list(block_bodies(line, 10**18))
    door = [packet for body in bodies for packet in packets_of([view_block(body)], 0, SENDER, 1)]
    assert followed(door) == (state, trades), "a gateway by the door of a retransmit server"
    again = packets_of(read_blocks(customer), 0, SENDER, 1)
    assert followed(again) == (state, trades), "repairs from what a line brought"

    arbiter, told = Arbiter(CODE, 1), list[Trade]()
    heard: dict[int, list[FloorMessage]] = {token: [] for token in range(1, TOKENS + 1)}
    rows = []
    for header, _, sequence, index, one in JournalReader(journal).opaque_messages():
        heard[header.token_number].append(FloorMessage(sequence, one.topic, one.payload, header.shuffle_key))
        row: dict[str, Any] = {"sequence": sequence, "index": index, "token": header.token_number}
        row |= {"instant_ns": header.instant, "shuffle_key": header.shuffle_key, "ends_token": header.ends_token}
        rows.append({**row, "topic": one.topic, "payload": one.payload})
    for token, messages in heard.items():
        effects = arbiter.step(TokenReleased(token, token * PERIOD, 0, 3, (1, 2, 3), tuple(messages)))
        told += [trade for effect in effects if isinstance(effect, Stepped) for trade in effect.step.trades]
    assert (state_hash(arbiter.floor.floor), told) == (state, trades), "a site"
    assert [(row[1], *row[5:7]) for row in trade_rows(rows, CODE)] == [
        (trade.number, trade.price, trade.quantity) for trade in trades
    ], "Spark"


def test_a_token_of_which_a_journal_has_only_a_part_is_left_out(tmp_path: Path) -> None:
    """A part of its events, shuffled, is no beginning of all of them: trades would be told that nobody makes."""
    _, trades = computed(released(tmp_path / "receiver", 0))
    line = on_the_line(tmp_path / "receiver")
    parts = [place for place in range(1, len(line)) if line[place].token_number == line[place - 1].token_number]
    for place in parts:
        told = computed(written(tmp_path / f"customer {place}", line[:place]))[1]
        assert told == computed_up_to(tmp_path / "receiver", line[place].token_number - 1), (
            f"token {line[place].token_number}"
        )
        assert told == trades[: len(told)]


def test_the_order_of_the_key_is_what_the_audit_computes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = released(tmp_path / "receiver", 1)
    assert JournalFloor(journal, CODE).verify().breaches == []
    monkeypatch.setattr("isocast.terms.entry._PERSON", b"another")
    broken = JournalFloor(journal, CODE).verify().breaches
    assert {one.property for one in broken} == {"T8"}


def test_a_journal_of_an_older_customer_has_no_keys_and_says_so(tmp_path: Path) -> None:
    line = on_the_line(released(tmp_path / "receiver", 2))
    older = written(tmp_path / "customer", [one._replace(shuffle_key=bytes(16)) for one in line])
    with pytest.raises(JournalError, match=r"token 1 has no shuffle key.*fetch"):
        computed(older)
