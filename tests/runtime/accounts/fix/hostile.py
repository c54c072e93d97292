"""Ways for hostile bytes into FIX: a stream, one message with a right frame around it, and orders at a session."""

from __future__ import annotations

from collections.abc import Callable

from tests.runtime.accounts.fake_desk import START_NS
from tests.runtime.accounts.fix.transcripts import OURS, THEIRS, framed, summed

from isocast.runtime.accounts.fix.dictionary import fault_of
from isocast.runtime.accounts.fix.messages import MESSAGE_BYTES_MAX, Framer, decode
from isocast.runtime.accounts.fix.session import WAITING_MAX, Send, Session
from isocast.terms.errors import RemoteProtocolError

Way = Callable[[bytes], None]
LINES = (
    "35=A|34=1|98=0|108=30|553=anna|554=secret",
    "35=D|34=2|11=ID|21=3|38=100|40=2|44=10.05|54=1|55=XISO|60=20231114-22:13:20|126=20231114-22:13:20.123",
    "35=D|34=3|11=ID|40=1|54=1|55=XISO|60=20231114-22:13:20|354=5|355=a~b~c|453=1|448=7|447=D|452=3|802=1|523=x",
    "35=G|34=4|11=ID2|41=ID|38=100|40=2|54=1|55=XISO|60=20231114-22:13:20|386=2|336=a|625=b|336=c",
    "35=2|34=5|7=1|16=0",
    "35=4|34=6|43=Y|122=20231114-22:13:20|36=9|123=Y",
    "35=5|34=7|58=good night",
    "35=1|34=8|115=A|116=B|144=C|112=x",
    "35=A|34=9|98=0|108=5|141=Y",
)


def _stream(data: bytes) -> None:
    """Into a framer, in pieces, and what it finds into the codec and the dictionary."""
    framer = Framer()
    found = [frame for at in range(0, len(data), 50) for frame in framer.feed(data[at : at + 50])]
    assert framer.held <= 2 * MESSAGE_BYTES_MAX + 100
    messages = [message for frame in found if (message := decode(frame)) is not None]
    for message in messages:
        fault_of(message)
    if not messages:
        raise RemoteProtocolError("nothing but garbled bytes")


def _message(data: bytes) -> None:
    """The body of one message, with a right length and sum, at a session that goes on afterwards."""
    frame = summed("8=FIX.4.4|9=#|" + data.decode("latin-1").rstrip("\x01") + "|10=#")
    session = Session(OURS, THEIRS)
    logon = decode(framed(LINES[0]))
    assert logon is not None
    session.log_on(logon, START_NS)
    effects = session.receive(frame, START_NS)
    assert all(decode(effect.frame) is not None for effect in effects if isinstance(effect, Send))
    assert len(session._waiting) <= WAITING_MAX  # noqa: SLF001 - the bound is the claim.
    if session.is_open:
        session.tick(START_NS + 40_000_000_000)
    if session.garbled:
        raise RemoteProtocolError("garbled")


FIX_WAYS: tuple[Way, ...] = (_stream, _message)


def fix_seeds() -> list[bytes]:
    """Inputs that are accepted, for each way."""
    bodies = [framed(line).split(b"\x01", 2)[2][:-7] for line in LINES]
    streams = [b"".join(framed(line) for line in LINES), *(framed(line) for line in LINES)]
    return [b"\0" + stream for stream in streams] + [b"\1" + body for body in bodies]
