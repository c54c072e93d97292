"""A receiver that takes another site's checkpoint over, in the epoch that it is in (`rejoin` says why it may).

`reformation.reconciliation` does the same on the way into a new ring.
"""

from __future__ import annotations

from isocast.ring.effects import LogReplaced, Persist
from isocast.ring.inputs import CheckpointFetched
from isocast.ring.ledger import Checkpoint
from isocast.ring.ordering import Mode
from isocast.ring.recovery import RANGE_TOKENS
from isocast.ring.rejoin import Rejoin, continues
from isocast.ring.release import Releaser
from isocast.ring.serving import Serving
from isocast.ring.settings import RingSettings, Schedule
from isocast.ring.storage import SiteState
from isocast.ring.token import PartStore
from isocast.terms.ids import NodeId
from isocast.wire.packets import Range, RangeReply, RangeRequest, Token, TokenPart

__all__ = ["Rejoining"]


class Rejoining(Serving):
    """As `Serving`, and gets over what everybody else has let go."""

    releaser_class = Releaser

    def __init__(self, site: NodeId, settings: RingSettings, secret: bytes, state: SiteState) -> None:
        """Start, or restart, from what the disk says."""
        super().__init__(site, settings, secret, state)
        self.releaser = self.releaser_class(settings, lambda: self.ledger.entries, self.may_release)
        self.releaser.restore(state.released, state.offset, state.next_sequence, state.skip_below)
        self.rejoin = Rejoin(self.timing)
        self._proof = PartStore()
        self._audited = 0

    def may_release(self, token_number: int) -> bool:
        """The gate."""
        raise NotImplementedError

    def on_range_reply(self, reply: RangeReply, now: int) -> None:
        """Somebody has let go what this site lacks; when all have, it takes a checkpoint over."""
        if self.mode is not Mode.SEALED:
            self.rejoin.gone(reply, self.held + 1, self.asked(), now)

    def asked(self) -> tuple[NodeId, ...]:
        """Whom this site asks for what it lacks."""
        ring = self.schedule.ring if self.schedule is not None else ()
        return tuple([site for site in ring if site != self.site])

    def givers(self) -> tuple[NodeId, ...]:
        """Who may have a checkpoint of this epoch's log."""
        return self.asked()

    def on_checkpoint(self, fetched: CheckpointFetched, now: int) -> None:
        """Consider a checkpoint of this epoch that is ahead of this site; its journal has everything before it."""
        checkpoint = fetched.checkpoint
        if self.mode is not Mode.SEALED and checkpoint.epoch == self.accepted and checkpoint.token_number > self.held:
            self._proof.clear()
            self.rejoin.consider(checkpoint.copy(), fetched.giver, now)
        elif self.rejoin.wanting:
            self.rejoin.refuse(now)

    def on_token(self, token: Token, now: int) -> None:
        """As the ordering rules say; first it may prove a checkpoint."""
        checkpoint = self.rejoin.checkpoint
        if checkpoint is not None and token.token_number == checkpoint.token_number + 1 and self.accepts(token.epoch):
            self._judge(checkpoint, token, now)
        super().on_token(token, now)

    def on_part(self, part: TokenPart, now: int) -> None:
        """As the ordering rules say; first it may prove a checkpoint."""
        checkpoint = self.rejoin.checkpoint
        if checkpoint is not None and part.token_number == checkpoint.token_number + 1 and self.accepts(part.epoch):
            token = self._proof.add(part)
            if token is not None:
                self._judge(checkpoint, token, now)
        super().on_part(part, now)

    def _judge(self, checkpoint: Checkpoint, token: Token, now: int) -> None:
        """Take the checkpoint over if this token of its owner's continues it."""
        schedule = self.schedule
        if schedule is None or token.sender != schedule.owner(token.token_number):
            return
        if not continues(token, checkpoint):
            self.rejoin.refuse(now)
            return
        self.out.append(Persist(LogReplaced(checkpoint)))
        self._take_over(checkpoint)
        self._parts.forget(self.held)
        self._tokens = {number: kept for number, kept in self._tokens.items() if number > self.held}
        self._missing = set()
        self._audited = max(self._audited, self.held)
        self.issuer.slot = schedule.next_slot(self.site, self.held + 1)
        self._forget_commits(schedule)
        self._receipt(now)
        # What came meanwhile may continue it already.
        self._advance(now)

    def _take_over(self, checkpoint: Checkpoint) -> None:
        """The log is what it is behind the checkpoint: certified, since its giver had released it."""
        self.rejoin.reset()
        self.ledger.replace(checkpoint)
        self.certificates.certified = checkpoint.token_number
        self.releaser.take_over(checkpoint.token_number, checkpoint.next_sequence)

    def _forget_commits(self, schedule: Schedule) -> None:
        """What was committed in tokens that this site does not have is not known to it."""
        for owner in schedule.ring:
            last = (schedule.next_slot(owner, self.held + 1) or 0) - schedule.size
            if last >= schedule.first_token and last not in self.ledger.entries:
                self.issuer.unknown(owner)

    def _settle_rejoin(self, now: int) -> None:
        """Wish for a checkpoint, or ask for the token that proves one."""
        rejoin = self.rejoin
        if rejoin.ask_for_proof(now) and rejoin.checkpoint is not None:
            # The token that proves it, and what follows that one.
            first = rejoin.checkpoint.token_number + 1
            stripe, epoch, site = self.settings.stripe, self.accepted, self.site
            last = first + RANGE_TOKENS - 1
            self._send(rejoin.giver, RangeRequest(stripe, epoch, site, Range.TOKENS, first, last))
        wish = rejoin.due(self.givers(), self.held, now)
        if wish is not None:
            self.out.append(wish)
            self._still_lacks()

    def _still_lacks(self) -> None:
        """F2: whoever searches for a checkpoint holds no token meanwhile, and says so as often as it asks."""
        schedule = self.schedule
        if schedule is not None and self.held + 1 >= schedule.first_token:
            self.give_up(self.held + 1, schedule.owner(self.held + 1))
