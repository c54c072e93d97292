"""A trusted receiver as a process: R_P or R_S with its log, its journal, its line and its door.

A release is opened, journalled and then sent to the line, in this order: what a customer heard is always in the
journal, and what the journal has after a crash is never released again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocast.hierarchy.edge import MessagesReleased
from isocast.hierarchy.line_sender import LineSender
from isocast.ring.effects import (
    Collect,
    EntryCompleted,
    FairnessFaulted,
    ReadJournal,
    Record,
    Release,
    RingInstalled,
    RingSuspected,
)
from isocast.ring.inputs import ClockJudged, JournalRead, TimerFired
from isocast.runtime.counters import NodeGauges, gauges_from
from isocast.security.sealing import Opener
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Label
from isocast.wire.limits import EVENT_BYTES

if TYPE_CHECKING:
    from isocast.runtime.journal import Journal
    from isocast.runtime.roles.context import Context
    from isocast.runtime.site_store import SiteStore

__all__ = ["ReceiverHost"]
