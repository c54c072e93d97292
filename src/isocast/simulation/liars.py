"""An owner that lies: it reveals another nonce in its token than the one that it committed to.

Its commitments stay true, so that it is honest again as soon as it wants to be.
"""

from __future__ import annotations

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.issuing import Issuer
from isocast.wire.packets import digest_of

__all__ = ["turn"]


def turn(machine: object, *, lying: bool) -> None:
    """Make a site lie, or be honest again; whatever is no primary receiver commits to nothing."""
    if not isinstance(machine, PrimaryReceiver):
        return
    issuer = machine.receiver.issuer
    honest = type(issuer).__bases__[0] if type(issuer).__name__ == _LIAR else type(issuer)
    issuer.__class__ = type(_LIAR, (honest,), {"reveal": _lie}) if lying else honest


_LIAR = "LyingIssuer"


def _lie(issuer: Issuer, epoch: object, place: int) -> bytes:
    return digest_of(b"a lie", Issuer.reveal(issuer, epoch, place))
