"""The relaxation forgets when things were done, and notices when a machine no longer has what it forgets."""

from __future__ import annotations

import pytest

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ReformationServer
from isocast.ring.inputs import PacketsArrived
from isocast.ring.ledger import Checkpoint
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.simulation.exploration.freezing import Freezer
from isocast.simulation.exploration.properties import relax_server, relax_site
from isocast.terms.ids import Epoch, server_id
from isocast.terms.timing import Timing
from isocast.wire.packets import Invite

SETTINGS = RingSettings(Timing(detect_ns=1_000))
BALLOT = Epoch(1, server_id(1))


def site() -> PrimaryReceiver:
    return PrimaryReceiver(1, SETTINGS, b"secret", SiteState(Checkpoint(universe=(1, 2, 3))))


def test_a_second_copy_of_an_invitation_leaves_no_mark() -> None:
    machine, freezer = site(), Freezer()
    invited = PacketsArrived((Invite(0, BALLOT, BALLOT.server, BALLOT),))
    machine.step(invited, 0)
    relax_site(machine, 0)
    once = freezer.digest(machine)
    machine.step(invited, 0)
    assert freezer.digest(machine) != once
    relax_site(machine, 0)
    assert freezer.digest(machine) == once


def test_a_field_that_is_gone_stops_the_search() -> None:
    machine = site()
    del vars(machine.member)["_silences"]
    with pytest.raises(AttributeError, match="_silences: the relaxation is out of date"):
        relax_site(machine, 0)


def test_a_server_that_waits_may_act_at_once() -> None:
    server = ReformationServer(server_id(1), SETTINGS, 3, {})
    relax_server(server, 500)
    assert server.next_deadline() == 500
