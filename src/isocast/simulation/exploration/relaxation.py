"""What a machine does only so often, it may here do at any time.

Rate limits, counters of retries and instants of the next attempt make a machine send less, never something else.
Taking them away gives machines that send everything which the product may send, and more of it; since any packet may
also be lost, what is safe here is safe there. It leaves far fewer states, because nothing remembers when it last
asked. Every name here must exist: a machine that lost one stops the search.
"""

from __future__ import annotations

from typing import Any

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.ballot import Planned
from isocast.reformation.clocks import VotedClocks
from isocast.reformation.server import ReformationServer
from isocast.terms.ids import NO_EPOCH
from isocast.terms.instants import NEVER

__all__ = ["hear_all", "relax_server", "relax_site"]

_NEVER_AUDITED = 1 << 40
"""A token that is never due: audits only suspect, and here a ballot needs no suspicion."""


def _put(owner: object, **values: Any) -> None:  # noqa: ANN401 (whatever the field holds)
    for name, value in values.items():
        if not hasattr(owner, name):
            raise AttributeError(f"{type(owner).__name__} has no field {name}: the relaxation is out of date")
        setattr(owner, name, value)


def _sort(owner: object, *names: str) -> None:
    """Order these dictionaries by key: nothing depends on who came first."""
    for name in names:
        table = getattr(owner, name)
        if len(table) > 1:
            ordered = sorted(table.items())
            table.clear()
            table.update(ordered)


def hear_all(site: PrimaryReceiver, now: int) -> None:
    """Have heard everybody just now: who hears whom decides who is on a ring, and here any ring may come."""
    _put(site.member, _heard=dict.fromkeys(site.receiver.ledger.universe, now))


def relax_site(site: PrimaryReceiver, now: int) -> None:
    """Forget when things were last done."""
    receiver, member = site.receiver, site.member
    _put(site, _deadline=now)
    hear_all(site, now)
    _put(member, _silences=0, _repeated=False, _invited=0, _next_at=now, _asked=None)
    _put(member, _refused_at={}, _complained_at=-NEVER, _joined_at=-NEVER)
    _put(receiver, conflicts=0, _told_at={}, _reminded={}, _receipt_at=NEVER, _audited=_NEVER_AUDITED)
    _put(receiver, _deadline=NEVER, _last_now=now)
    _put(receiver.ledger, dropped=0)
    _put(receiver.releaser, _faulted=receiver.releaser.released)
    answered = getattr(receiver, "_answered")  # noqa: B009 (a field of another room)
    _put(answered, _span=0, _requests=set(), _packets={})
    recovery = getattr(receiver, "_recovery")  # noqa: B009
    if recovery is not None:
        _put(recovery, _attempts={}, _range=None, _range_held=-1, behind=False)
    _sort(receiver.certificates, "receipts")
    _sort(receiver.ledger, "next_number")
    _sort(receiver.issuer, "_commits")
    _sort(receiver, "reports")


def relax_server(server: ReformationServer, now: int) -> None:
    """Forget whom it told what, whom it bars, and whose clock shows what.

    Its grace and its patience may end at any time. Votes are looked at in the order of their sites.
    """
    _put(server, _told_at={}, _excused={}, _alive={}, _accused={}, _barred={}, _faltered={})
    _put(server, _planned=Planned(), _asked_at=-NEVER, _last_now=now)
    _put(server, _voted=VotedClocks(), _trial=NO_EPOCH, _borne=True, _fruitless={}, clock_ahead_ns=0)
    if server.next_deadline() < NEVER:
        _put(server, _next_at=now)
    ballot = getattr(server, "_ballot")  # noqa: B009
    if ballot is not None:
        _sort(ballot, "votes")
        if ballot.decide_at < NEVER:
            _put(ballot, decide_at=now)
