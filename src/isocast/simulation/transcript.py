"""A run as a person reads it: one line per fact, instants in seconds."""

from __future__ import annotations

from isocast.checks.facts import (
    Acknowledged,
    AgreedTrade,
    BatchTaken,
    Certified,
    ClockStepped,
    Collected,
    Completed,
    Convicted,
    Crashed,
    Cut,
    Delivered,
    Disclosed,
    Entrusted,
    Fact,
    Faulted,
    FloorBusted,
    FloorConfirmed,
    FloorCut,
    FloorDiffered,
    FloorReported,
    FloorStepped,
    FloorTold,
    Forced,
    Freed,
    Given,
    GroupHeaded,
    HandedBack,
    HeadChanged,
    Healed,
    Installed,
    Invited,
    LatestDelivered,
    LeftOut,
    Ordered,
    Paused,
    Promised,
    ReceiptHeard,
    ReceiptSent,
    Released,
    Replaced,
    Restarted,
    Resumed,
    Returned,
    RingFormed,
    Sealed,
    SecondaryTokenPassed,
    Settled,
    SnapshotTaken,
    StabilityClaimed,
    Stalled,
    Strayed,
    StripeArchived,
    StripeDatagramSent,
    StripeDelivered,
    StripeLeftOut,
    Submitted,
    Suspected,
    TokenMade,
    TokenSent,
    Unanswered,
    Voted,
)
from isocast.terms.ids import OPERATOR, describe
from isocast.wire.packets import NO_LIMIT

__all__ = ["describe_fact"]


def describe_fact(fact: Fact) -> str:
    """One line."""
    who, what = _told(fact)
    return f"{fact.at / 1e9:10.4f}  {who:<9}{what}"


def _told(fact: Fact) -> tuple[str, str]:  # noqa: C901, PLR0912, PLR0915 (one case per fact)
    match fact:
        case Submitted():
            return describe(fact.source), f"takes message {fact.number}"
        case TokenSent():
            return describe(fact.site), (
                f"sends token {fact.token_number} of epoch {fact.epoch}: {fact.count} messages,"
                f" T = {fact.instant / 1e9:.4f}"
            )
        case ReceiptSent():
            return describe(fact.site), f"says that it holds everything up to token {fact.held} in epoch {fact.epoch}"
        case TokenMade() | BatchTaken() | ReceiptHeard() | Certified() | Acknowledged() | Sealed() | Disclosed():
            return _known(fact)
        case Voted():
            return describe(fact.site), f"votes for ballot {fact.ballot}"
        case Invited():
            return describe(fact.server), f"invites to ballot {fact.ballot}"
        case RingFormed():
            members = " ".join(map(str, fact.ring.ring))
            return describe(fact.server), f"forms the ring of epoch {fact.ring.ballot}: {members}"
        case Freed():
            return describe(fact.source), f"lets go of its messages below {fact.base}"
        case Completed():
            return describe(
                fact.site
            ), f"completes token {fact.token_number} ({fact.messages} of {fact.expected} messages)"
        case Released():
            last = fact.first_sequence + len(fact.messages) - 1
            return describe(fact.site), (
                f"releases {fact.first_sequence}..{last} of token {fact.token_number},"
                f" {(fact.at - fact.due) / 1e6:+.3f} ms"
            )
        case Promised():
            return describe(fact.site), f"promises ballot {fact.ballot}"
        case Installed():
            ring = fact.ring
            members = " ".join(map(str, ring.ring))
            return describe(fact.site), (
                f"enters epoch {ring.ballot}: ring {members}, log kept up to {fact.keep},"
                f" cut {ring.cut_token}, token {ring.first_token} at {ring.start / 1e9:.4f}"
            )
        case Replaced():
            return describe(fact.site), (
                f"takes over the log at token {fact.token_number} of epoch {fact.epoch},"
                f" goes on with sequence {fact.next_sequence}"
            )
        case Collected():
            return describe(fact.site), f"drops everything up to token {fact.token_number} from memory"
        case Suspected():
            return describe(
                fact.site
            ), f"suspects {describe(fact.suspect)} over token {fact.token_number}: {fact.reason}"
        case Faulted():
            return describe(fact.site), f"cannot release token {fact.token_number} at its instant"
        case StabilityClaimed():
            group = "nobody below" if fact.secstable == NO_LIMIT else f"its group up to {fact.secstable}"
            return describe(fact.site), f"says in token {fact.token_number}: stable {fact.stable}, {group}"
        case SecondaryTokenPassed():
            return describe(fact.site), f"passes secondary token {fact.token_number} of group {fact.group}"
        case Unanswered():
            return describe(fact.site), f"asked {describe(fact.asked)} for token {fact.token_number} in vain"
        case Stalled():
            said = f"it said {fact.token_number} last" if fact.token_number else "it said nothing"
            return describe(fact.site), f"waits for {describe(fact.member)} no longer: {said}"
        case Returned():
            return describe(fact.site), f"waits for {describe(fact.member)} again, which holds {fact.token_number}"
        case Settled():
            kind, subject = fact.entry.kind.name.lower().replace("_", " "), fact.entry.subject
            return describe(fact.site), f"was asked: {kind} {subject}; {fact.outcome}"
        case Ordered():
            kind, subject = fact.entry.kind.name.lower().replace("_", " "), fact.entry.subject
            return describe(OPERATOR), f"orders: {kind} {subject or ''}".rstrip()
        case Forced():
            sites = " ".join(map(str, fact.universe))
            return describe(fact.node), f"forces U to {sites} from token {fact.token_number} of epoch {fact.epoch} on"
        case Strayed():
            last = fact.next_sequence - 1
            return describe(fact.site), f"released {fact.first_sequence}..{last}; epoch {fact.epoch} has others there"
        case Convicted():
            what = f"two contents of token {fact.token_number} in epoch {fact.epoch}"
            return describe(fact.node), f"proves that {describe(fact.author)} signed {what}"
        case GroupHeaded():
            own = "its own group" if fact.site == fact.group else f"the group of {describe(fact.group)}"
            return describe(fact.site), f"heads {own} in epoch {fact.epoch}{', everybody anew' if fact.anew else ''}"
        case HandedBack():
            return describe(fact.site), f"hands {describe(fact.member)} back to its head"
        case HeadChanged():
            why = f": {describe(fact.group)} is silent" if fact.silent else ""
            return describe(fact.site), f"belongs to {describe(fact.head)}{why}"
        case Crashed():
            return describe(fact.node), "crashes"
        case Restarted():
            disk = f"with its disk: token {fact.held}" if fact.disk_kept else "without its disk"
            return describe(fact.node), f"restarts {disk}"
        case ClockStepped():
            return describe(fact.site), f"has its clock set, {'within' if fact.kept else 'out of'} its bound"
        case Paused():
            return describe(fact.site), "is paused"
        case Resumed():
            return describe(fact.site), "goes on"
        case Delivered() | SnapshotTaken() | LatestDelivered() | LeftOut() | Given() | Entrusted():
            return _at_the_edge(fact)
        case StripeArchived() | StripeDatagramSent() | StripeDelivered() | StripeLeftOut():
            return describe(fact.node), _of_a_stripe(fact)
        case FloorStepped() | FloorReported() | FloorConfirmed() | FloorBusted() | FloorCut() | FloorDiffered():
            return describe(fact.site), _on_the_floor(fact)
        case FloorTold():
            return "customer", f"hears that {_trades(fact.trades)} confirmed"
        case Cut():
            return "network", "is cut"
        case Healed():
            return "network", "heals"


def _at_the_edge(
    fact: Delivered | SnapshotTaken | LatestDelivered | LeftOut | Given | Entrusted,
) -> tuple[str, str]:
    """What archives, customers and secondary sources do."""
    match fact:
        case Delivered():
            return describe(fact.node), f"gets sequences {_span(fact)}"
        case SnapshotTaken():
            return describe(fact.node), f"begins with a snapshot, and sequence {fact.next_sequence}"
        case LatestDelivered():
            return describe(fact.node), f"gets {len(fact.sequences)} newest events, up to sequence {fact.newest}"
        case LeftOut():
            return describe(fact.node), f"goes on without sequences {fact.first}..{fact.last}"
        case Given():
            return describe(fact.node), f"gives sequences {_span(fact)} again, of {fact.newest}"
        case Entrusted():
            return describe(fact.source), f"takes message {fact.number} for its parent"


def _of_a_stripe(fact: StripeArchived | StripeDatagramSent | StripeDelivered | StripeLeftOut) -> str:
    """What senders and customers of narrow stripes do."""
    match fact:
        case StripeArchived():
            return f"makes numbers {fact.number}..{fact.number + len(fact.messages) - 1} of stripe {fact.stripe}"
        case StripeDatagramSent():
            what = "sends" if fact.count else "says that nothing follows before"
            return f"{what} number {fact.number} of stripe {fact.stripe}, {fact.ip_bytes} IP bytes"
        case StripeDelivered():
            return f"gets numbers {fact.first}..{fact.first + len(fact.messages) - 1} of stripe {fact.stripe}"
        case StripeLeftOut():
            return f"goes on without numbers {fact.first}..{fact.last} of stripe {fact.stripe}"


def _on_the_floor(
    fact: FloorStepped | FloorReported | FloorConfirmed | FloorBusted | FloorCut | FloorDiffered,
) -> str:
    """What arbiters do."""
    match fact:
        case FloorStepped():
            made = f", {_trades(fact.trades)} tentative" if fact.trades else ""
            return f"applies token {fact.token_number} to the floor: state {fact.state[:4].hex()}{made}"
        case FloorReported():
            what = f"token {fact.token_number}, state {fact.state[:4].hex()}, {len(fact.trades)} trades"
            return f"reports {what}, confirmed up to {fact.confirmed}"
        case FloorConfirmed():
            return f"at token {fact.token_number}: {_trades(fact.trades)} confirmed, reported in token {fact.reported}"
        case FloorBusted():
            return f"{_trades(fact.trades)} busted"
        case FloorCut():
            return f"has its floor as it was after token {fact.token_number}"
        case FloorDiffered():
            return f"differs on the floor after token {fact.token_number}: {fact.text}"


def _trades(trades: tuple[AgreedTrade, ...]) -> str:
    if len(trades) == 1:
        return f"trade {trades[0].number} is"
    return f"trades {trades[0].number}..{trades[-1].number} are" if trades else "nothing is"


def _span(fact: Delivered | Given) -> str:
    return f"{fact.packets[0].sequence}..{fact.packets[-1].sequence}" if fact.packets else "none"


def _known(
    fact: TokenMade | BatchTaken | ReceiptHeard | Certified | Acknowledged | Sealed | Disclosed,
) -> tuple[str, str]:
    """What a node hears, and believes."""
    match fact:
        case TokenMade():
            return describe(fact.site), f"made token {fact.token.token_number} of epoch {fact.token.epoch}"
        case BatchTaken():
            taken, left = len(fact.taken), sum([count for _, count in fact.left])
            return describe(fact.site), f"took {taken} messages for token {fact.token_number}, and left {left}"
        case ReceiptHeard():
            return describe(fact.site), f"hears that {describe(fact.sender)} holds {fact.held} in epoch {fact.epoch}"
        case Certified():
            return describe(fact.site), f"counts token {fact.token_number} as certified in epoch {fact.epoch}"
        case Acknowledged():
            return describe(fact.source), f"takes its messages below {fact.below} for acknowledged"
        case Sealed():
            return describe(fact.source), f"seals message {fact.number}"
        case Disclosed():
            numbers = ", ".join([str(number) for number, _ in fact.links])
            return describe(fact.source), f"discloses {f'the keys up to {numbers}' if numbers else 'nothing, and asks'}"
