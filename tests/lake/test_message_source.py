"""`.option("frame", "messages")`: opaque messages of journals as rows, beside events and without them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.lake.direct import read_stream, read_table, stream_of
from tests.runtime.worlds import trades

from isocast.lake.schemas import MESSAGES_SCHEMA
from isocast.runtime.disk.journal import Journal
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.opaque import OpaqueMessage, cut_opaque
from isocast.wire.packets import payload_digest

FLOOR = source_id(7, 1)
BIG = (1 << 64) - 1
MESSAGES = [
    OpaqueMessage("quiz", b"pressed", b"table 7", 17),
    OpaqueMessage("quiz", b"\x00\xff", b"", BIG),
    OpaqueMessage("auction", b"", b"lot", 0),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences 1 to 6: events, two opaque messages, events, one opaque message, strange bytes, nothing."""
    path = tmp_path_factory.mktemp("journals")
    payloads = [
        trades(2).tobytes(),
        *cut_opaque(MESSAGES[:2], 1_296),
        trades(1).tobytes(),
        *cut_opaque(MESSAGES[2:], 1_296),
        b"\xf0 no opaque message",
        b"",
    ]
    messages = [(FLOOR, number, payload_digest(raw), raw) for number, raw in enumerate(payloads, 100)]
    with Journal.open(path / "tokyo-0" / "journal", 0, 1) as journal:
        for token, some in enumerate((messages[:3], messages[3:]), 5):
            first = 1 + 3 * (token - 5)
            epoch = Epoch(2, server_id(1))
            journal.append(ReleasedBlock(epoch, token, 3, 0, first, 1_000 * token, 1_500, 1_600, 50, bytes(16), some))
    return path


def test_every_opaque_message_is_a_row_with_its_provenance(folder: Path) -> None:
    table = read_table(folder, frame="messages")
    assert table.schema == MESSAGES_SCHEMA
    rows = table.to_pylist()
    assert rows[0] == {
        "stripe": 0,
        "sequence": 2,
        "index": 0,
        "token": 5,
        "epoch_number": 2,
        "epoch_server": server_id(1),
        "receiver": 1,
        "source": int(np.uint64(FLOOR).astype(np.int64)),
        "number": 101,
        "topic": "quiz",
        "key": b"table 7",
        "payload": b"pressed",
        "sent_ns": 17,
        "shuffle_key": bytes(16),
        "ends_token": True,
        "instant_ns": 5_000,
        "due_ns": 1_500,
        "released_ns": 1_600,
        "clock_bound_ns": 50,
        "fetched": False,
        "uncertified": False,
    }
    places = [(row["sequence"], row["index"], row["number"], row["payload"], row["sent_ns"]) for row in rows]
    assert places[1:] == [(2, 1, 101, b"\x00\xff", -1), (4, 0, 103, b"", 0)]
    assert read_table(folder)["sequence"].to_pylist() == [1, 1, 3]


def test_ranges_topics_and_columns_choose(folder: Path) -> None:
    assert read_table(folder, frame="messages", topic="auction")["sequence"].to_pylist() == [4]
    assert read_table(folder, frame="messages", fromSequence=3)["topic"].to_pylist() == ["auction"]
    some = read_table(folder, frame="messages", columns="payload, topic", toSequence=3)
    assert some.to_pylist() == [{"payload": b"pressed", "topic": "quiz"}, {"payload": b"\x00\xff", "topic": "quiz"}]
    for wrong, text in (
        ({"symbol": "IBM"}, "choose by the option topic"),
        ({"frame": "released", "topic": "quiz"}, "of the frame messages"),
        ({"topic": "a b"}, "1 to 64 printable ASCII"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            read_table(folder, **{"frame": "messages", **wrong})


def test_strange_bytes_are_noted_once_and_stop_nobody(folder: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    table = read_table(folder, frame="messages", onError="quarantine", quarantine=notes)
    assert table.num_rows == 3
    [note] = notes.iterdir()
    assert "sequence 5: 19 bytes are neither events nor opaque messages" in note.read_text(encoding="utf-8")
    assert read_table(folder, frame="messages", receiver="all").num_rows == 3


def test_a_stream_has_each_message_once(folder: Path) -> None:
    reader = stream_of(folder, frame="messages")
    first, middle = reader.initialOffset(), {"0": 3}
    end = reader.reportLatestOffset()
    assert end == {"0": 7}
    parts = [pa.Table.from_batches(list(read_stream(reader, *span))) for span in ((first, middle), (middle, end))]
    assert [part["sequence"].to_pylist() for part in parts] == [[2, 2], [4]]


def test_spark_reads_them(spark: SparkSession, folder: Path) -> None:
    frame = spark.read.format("isocast").option("frame", "messages").load(str(folder))
    rows = frame.groupBy("topic").count().orderBy("topic").collect()
    assert [tuple(row) for row in rows] == [("auction", 1), ("quiz", 2)]
    [row] = frame.where("topic = 'quiz' and index = 1").collect()
    assert bytes(row["payload"]) == b"\x00\xff"
