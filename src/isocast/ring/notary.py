"""Who said it (§6): a notary signs what its node sends, and judges what others signed.

A tag says that a holder of the group's key sent a frame; any of them could have forged it. A signature says who. What
cannot be verified is counted, by kind, and treated as if it had never come. A network without identities has a notary
too: it signs nothing and believes the tags.
"""

from __future__ import annotations

from isocast.terms.ids import Epoch, NodeId
from isocast.wire.orders import order_of, order_statement
from isocast.wire.packets import ControlEntry, Vote
from isocast.wire.signing import SERIAL_BYTES, UNSIGNED, OrderVerifier, SignedKind, Signer
from isocast.wire.statements import Signed, SignedPacket, SignedT, signed, signed_vote, with_signature

__all__ = ["Notary"]


class Notary:
    """The hand and the eye of one node."""

    def __init__(
        self,
        signer: Signer | None = None,
        verifier: OrderVerifier | None = None,
        *,
        receipts: bool = False,
        refused: dict[SignedKind, int] | None = None,
    ) -> None:
        """Without a signer nothing is signed, without a verifier the tags are believed.

        `receipts`: RECEIPTs are signed too; each member verifies one of every other member for each token. `refused`
        is where refusals are counted.
        """
        self.verifies = verifier is not None
        self.receipts = receipts and verifier is not None
        self.refused: dict[SignedKind, int] = {} if refused is None else refused
        """What was not signed by whom it names, by kind."""
        self._signer = signer
        self._verifier = verifier

    @property
    def signs(self) -> bool:
        """Whether this node has an identity to sign with."""
        return self._signer is not None

    def sign(self, packet: SignedT) -> SignedT:
        """The packet as its sender signs it."""
        if self._signer is None:
            return packet
        kind, epoch, body = signed(packet)
        signature = self._signer.sign(kind, packet.stripe, epoch, body)
        return with_signature(packet, signature)

    def is_outdated(self, packet: SignedPacket) -> bool:
        """Whether it was signed under another roster than this node signs under now: others may refuse it."""
        if self._signer is None or packet.signature == UNSIGNED:
            return False
        kind, epoch, body = signed(packet)
        return not self._signer.sign(kind, packet.stripe, epoch, body).startswith(packet.signature[:SERIAL_BYTES])

    def is_genuine(self, packet: SignedPacket) -> bool:
        """Whether its sender signed a packet; counted if not."""
        return self._verifier is None or self._judge(packet.sender, packet.stripe, signed(packet), packet.signature)

    def is_vote(self, vote: Vote, ballot: Epoch, stripe: int) -> bool:
        """Whether a site cast a vote that a NEWRING repeats; counted if not."""
        return self._verifier is None or self._judge(vote.site, stripe, signed_vote(vote, ballot), vote.signature)

    def is_ordered(self, entry: ControlEntry, stripe: int, token_number: int, *, settled: bool = False) -> bool:
        """Whether the operator signed the order of an entry in this token; counted if not.

        `settled`: others took it into the log, and a revocation since does not undo it.
        """
        verifier = self._verifier
        if verifier is None:
            return True
        if entry.order:
            number, until, signature = order_of(entry.order)
            said = order_statement(entry, number, until)
            if verifier.is_order(stripe, said, signature, token_number, settled=settled):
                return True
        self.refuse(SignedKind.CONTROL)
        return False

    def _judge(self, node: NodeId, stripe: int, said: Signed, signature: bytes) -> bool:
        verifier = self._verifier
        kind, epoch, body = said
        if (
            verifier is not None
            and signature != UNSIGNED
            and verifier.is_from(node, kind, stripe, epoch, body, signature)
        ):
            return True
        self.refuse(kind)
        return False

    def refuse(self, kind: SignedKind) -> None:
        """Count a packet that cannot be what it says."""
        self.refused[kind] = self.refused.get(kind, 0) + 1
