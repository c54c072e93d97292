"""The properties that every run and every journal is held to: one name, one title and one definition of each.

Whoever reports a breach uses these: the simulator's checkers, the model checker, the demo, drills, `journal verify` and
the audit. `docs/reference/properties.md` shows the same table; a test compares the two.

T_t is the scheduled instant of token t, h the newest token up to which a site holds everything, U the configured sites,
m the size of the ring, t0 the first token of an epoch e, prom and e_acc the epochs that a site has promised and
entered. *Really* means: with every message, by the site's own completions, not by what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["PROPERTIES", "Property", "explained", "title"]


class Property(NamedTuple):
    """One promise of the protocol."""

    name: str
    """S1 to S21: safety, at every moment; F1 to F6: fairness and time; L1 to L8: liveness, once faults stop; T1 to T8:
    trades."""
    title: str
    """In a few words, for tables and headings."""
    sentence: str
    """What must hold."""
    broken: str
    """What it means for a market when it does not."""
    in_journals: str = ""
    """How journals show it; empty where they cannot."""


_ALL = (
    Property(
        "S1",
        "agreement",
        "Any two sites agree on the message at every released sequence. Asserted for the gates majority, total and"
        " next-L with L+1 > |U|/2; for the others only without faults. Where a ring without a majority of U is allowed"
        " (policy `availability`, or a forced change), the sequences with two contents are counted instead"
        " (`divergent`).",
        "Customers of two receivers hold two different histories of the market.",
        "a digest of every block of messages is equal at all receivers; the first difference is named",
    ),
    Property(
        "S2",
        "no gap, no duplicate",
        "The released sequences of a site are contiguous, restarts included, and none is released twice, not even by a"
        " site whose log lost to another's; each (source, incarnation, M) occurs once. A site that took another's"
        " checkpoint over goes on at the checkpoint's next sequence, or where it was if that is further.",
        "A receiver skipped messages, or gave some to its customers twice.",
        "sequences are contiguous from 1 or a journal's recorded beginning; none, nor a (source, number), occurs twice",
    ),
    Property(
        "S3",
        "source order",
        "Each source's messages are released in the order of their numbers, without a gap.",
        "A later message of a source was released before an earlier one.",
        "each source's numbers follow one another",
    ),
    Property(
        "S4",
        "no forged message",
        "What is released was submitted, with the same digest. No number of an incarnation is submitted with two"
        " contents.",
        "A message that no source submitted is in the sequence, or one was changed on its way.",
        "source, number and digest are what the others have; unsealed payloads match their digest",
    ),
    Property(
        "S5",
        "one content per token",
        "There is at most one content per (e, t), from its owner, sent or only written; and one ring per epoch, at the"
        " servers and where it is installed.",
        "Sites may order different messages under one token, although each of them follows the rules.",
        "epoch, instant, size and shuffle key of a token are the same everywhere",
    ),
    Property(
        "S6",
        "senders hold what precedes",
        "Whoever sends token t of e really holds e's log up to t-1. Whoever passes secondary token v of e really holds"
        " e's log up to v, and so does everybody below it.",
        "A token no longer proves what its sender holds; what rests on that may be lost.",
    ),
    Property(
        "S7",
        "promises only rise",
        "prom and e_acc never go back, restarts included. No TOKEN or RECEIPT of e after prom > e; a vote for b only"
        " after prom = b is written. A server invites to no ballot in two of its lives. A site that lost its disk never"
        " votes again under its id. A secondary receiver sends no token and no receipt, and promises nothing.",
        "Two rings may be alive at once, and release different messages.",
    ),
    Property(
        "S8",
        "stability claims are true",
        "When token t is sent and t-m+1 ≥ t0, every member really holds everything up to t-m+1. What a token calls"
        " `stable` is really held by every member and below them; what it calls `secstable`, by everybody below its"
        " sender; and it sets no limit only if nobody is below.",
        "Sources and receivers free messages that somebody still lacks.",
    ),
    Property(
        "S9",
        "certified is kept",
        "A release by the majority gate means that a majority of U held the log up to that token in one epoch, before"
        " promising more. The releasing site knows it: from receipts of that one epoch, of sites of U, that it has"
        " heard; and it counts nothing else as certified. What a majority held is in the log of every later ring. A"
        " restart holds no less than was receipted. U is that of the log: it changes by one site at a time, each change"
        " certified, by the U before it or after it, before the next begins; a forced change needs no certificate, and"
        " settles everything before it. In a ring without a majority of U a majority of the ring counts, and every"
        " release says so.",
        "A message that was released may be missing from the next ring's log.",
    ),
    Property(
        "S10",
        "dropped only when held by all",
        "What a site drops from memory is really held by every member of its ring and by every secondary receiver that"
        " one of them counts, or should.",
        "A receiver that lacks a message may find nobody who can send it again.",
    ),
    Property(
        "S11",
        "instants rise",
        "A token carries its scheduled instant; a ring starts at least a period after the newest token of its cut"
        " (T0 ≥ T_h+τ_t).",
        "The order of releases and the order of their instants differ.",
        "tokens, epochs, scheduled instants and each clock never go back",
    ),
    Property(
        "S12",
        "nothing early",
        "Nothing is released before T_t+Δ_A-ε (paced: before its place's instant less ε) by a clock within its bound;"
        " and what an earlier ring ordered, not before T0-ε of the present one.",
        "Somebody had a message before the others could have it.",
        "by its own clock nobody releases before the common instant; none lies before T_t+Δ_A",
    ),
    Property(
        "S13",
        "sources keep what is not stable",
        "A source takes for acknowledged only what the log of its epoch names, and lets go only of what a token called"
        " stable. Not judged where rings may diverge.",
        "A message that a source accepted may be lost for good.",
    ),
    Property(
        "S14",
        "archives tell the truth",
        "An archive gives only what is on its disk, as it is there, and says truly how far that goes. What it or a"
        " complete customer leaves out, no server that it asks has any more.",
        "A customer is sent what was never released, or told that a message is lost that somebody still has.",
    ),
    Property(
        "S15",
        "latest is the newest",
        "A customer of grade latest gets the newest event of a key as of some sequence, and of one key never an older"
        " event after a newer one. A snapshot is what the sequence says.",
        "A customer takes an old price for the present one.",
    ),
    Property(
        "S16",
        "narrow stripes say what was released",
        "A narrow stripe carries what was released of its symbols, in order and each event once. Only a price that a"
        " newer one of its symbol follows may be missing.",
        "A customer with a narrow line lacks an event that no newer one replaces, or sees events out of order.",
    ),
    Property(
        "S17",
        "vouched by a majority",
        "A majority of U signed, in one epoch, tokens or receipts whose chain of digests contains every released token;"
        " and what was released under it are the messages of its runs, with the contents whose sealed digests it names,"
        " in its order.",
        "A journal says something that the market did not order, or that only its holder says.",
        "with a roster: seal keys, tokens and signatures that a journal keeps prove its contents and their order",
    ),
    Property(
        "S18",
        "only liars are convicted",
        "Whoever is convicted signed two contents for one token, or two digests in receipts for one token, of one"
        " stripe and epoch.",
        "A site that kept every promise is shut out of the ring.",
    ),
    Property(
        "S19",
        "the operator decides who decides",
        "U changes, by a token or by force, only as an operator ordered: the log of an honest site has no such entry"
        " but with an order that the operator signed.",
        "A member or a server chooses by itself who has a vote.",
    ),
    Property(
        "S20",
        "closed until certified",
        "Where sources disclose their keys: a source shows the key of a message only when a majority of U has receipted"
        " the token that acknowledges it, and no key that was shown before opens a message that is made later. A"
        " message is released opened if and only if one of the next V tokens of the log carries a key that opens it:"
        " it is void at all sites or at none.",
        "Somebody could read a message before its place in the sequence was certain, or two sites disagree on whether"
        " it counts.",
    ),
    Property(
        "S21",
        "signed for by its source",
        "Every released message of a source with an identity lies on the chain of payload digests that this source"
        " signed.",
        "Somebody who holds a source's tag key, as every receiver does, put a message into its name.",
        "with a roster: the statements of sources that a journal keeps cover every message in their names",
    ),
    Property(
        "F1",
        "simultaneous release",
        "Sites that recorded no fairness fault in time release one message within 2ε of one another; and no fault is"
        " recorded for what goes out at its instant, which would excuse anything.",
        "Customers of one place had a message earlier than those of another, and nobody recorded it.",
        "the spread of the release times of each message, against twice the widest bound of a releasing clock",
    ),
    Property(
        "F2",
        "held in time, or suspected",
        "(k_p-1)·τ_t+δ_N+2ε+k_r·τ_r after T_t a site really holds t, or has suspected since T_t. A site that was away"
        " and makes progress is given time.",
        "A site lags behind without telling anybody; its releases will be late.",
    ),
    Property(
        "F3",
        "punctual owners",
        "The owner of t sends it between T_t and T_t+P by its clock, or suspects itself and stays silent.",
        "A token is early, or late enough to delay a release without anybody knowing why.",
    ),
    Property(
        "F4",
        "fair share of a token",
        "A token takes everything that waits at its owner, each source's contiguous prefix; if that is more than K_max,"
        " max-min fair shares. With `order_in_token` of arrival, in the order in which the owner got it, a message that"
        " overtook its predecessor right behind it.",
        "One source gets more of the ring than another that wants as much.",
    ),
    Property(
        "F5",
        "honest shuffle",
        "With `order_in_token` of shuffle: an owner reveals the nonce that it committed to; a token that reveals"
        " another enters no other log in its epoch, nor by a reformation as long as nothing else goes wrong; and"
        " messages stand where the nonces of two owners put them. A site that restarted or took a log over in that"
        " epoch may not know the commitment.",
        "An owner may choose the order of the messages in its token.",
    ),
    Property(
        "F6",
        "narrow stripes keep their rate",
        "The IP bytes of a narrow stripe in any token period are within its budget, by its sender's clock, restarts"
        " included.",
        "The line of a customer with little bandwidth is flooded, and loses packets.",
    ),
    Property(
        "L1",
        "every submission is released",
        "Every submission is released at every correct site, secondary receivers included: those that are up, have"
        " their disk, and whose clock is right.",
        "A message that a source accepted never reaches some receivers.",
        "every message that a source accepted is in the sequence; every receiver comes to its end",
    ),
    Property(
        "L2",
        "ballots end",
        "Ballot races end: all correct sites are unsealed and in one epoch.",
        "The market stands still although nothing is wrong any more.",
    ),
    Property(
        "L3",
        "crashes are noticed",
        "A member that crashes and stays down is suspected, or a ballot begins, within (m+1)·τ_t and one recovery, as"
        " long as a majority of its ring works and nothing is cut.",
        "A dead member holds the ring up for longer than the outage that a market plans for.",
    ),
    Property(
        "L4",
        "bounded backlog",
        "No message waits for a token at the end, where sources offer less than the tokens take (λ·τ_t < K_max).",
        "Queues grow although there is room for everything that is offered.",
    ),
    Property(
        "L5",
        "complete delivery",
        "Every complete customer that runs gets every message from its start on, in order and each once, and every"
        " archive has it. A customer of grade latest has the newest event of each key, or was told that it was left"
        " out.",
        "A customer that pays for every message lacks some, or has some twice; or one that follows the newest events"
        " was left behind without a word.",
        "the journals of retransmit servers and complete customers have no gap and no duplicate, and come to the end",
    ),
    Property(
        "L6",
        "operators' changes happen",
        "What an operator asks for happens: U is changed, and where a ring was started without a majority of U, there"
        " is one with it as soon as a majority is back. L5 holds for customers and archives that were down, too.",
        "A site cannot be added or removed, the market stays uncertified, or a customer that comes back never catches"
        " up.",
    ),
    Property(
        "L7",
        "lasting faults stop nobody else",
        "Dead nodes and wrong clocks that stay for ever stop nobody else. With a connected majority of U whose clocks"
        " are right, and one server that is up, whatever its clock shows, L1, L2 and L4 hold for the rest while they"
        " stay; and so they do for a message of each source that is submitted when all has come right.",
        "One dead node or one wrong clock stops the market.",
    ),
    Property(
        "L8",
        "secondary receivers are counted",
        "Every correct secondary receiver is counted by somebody on the ring: by the head of its group there, or by an"
        " adopter.",
        "Memory is freed without asking a receiver that works; it may lack messages for good.",
    ),
    Property(
        "T1",
        "one floor",
        "After every token of a trading floor, all sites that have released it have the same state of the floor and the"
        " same trades, with the same prices and numbers. A site reports what it has itself, and nothing that it has not"
        " released.",
        "Two receivers tell two different trades, or one a trade that may never have been.",
    ),
    Property(
        "T2",
        "confirmed is kept",
        "A confirmed trade is the same at every site, is never changed or taken back, and follows on the one before it."
        " When a site takes it for confirmed, every member of the ring that issued the token really holds the token"
        " with its report. A customer who has only the sequence takes for confirmed what a site did before. Once faults"
        " stop, all trades are confirmed, and whatever else was made under their numbers is taken back, at every"
        " correct site and for that customer.",
        "Money was paid for a trade that does not exist.",
    ),
    Property(
        "T3",
        "shares are conserved",
        "No order trades more than its quantity.",
        "Somebody owns, or owes, more shares than he ordered.",
    ),
    Property(
        "T4",
        "price, then time",
        "No order trades while a better one waits. Continuous: whoever waited is the best of its side, by price, then"
        " by time, and the price is that of the symbol's rule. Uniform price: at one price at which most trades and"
        " least is left over; whoever stands before the last level is filled whole, and in it shares are by time, in"
        " proportion, or token by token. Second price: the highest revealed bid wins, of equal ones the earliest, and"
        " pays the larger of the next and the reserve. Dutch: at the clock's price, within the bid's ceiling.",
        "Somebody was passed over who offered more, or came earlier.",
    ),
    Property(
        "T5",
        "an order counts once",
        "An order is in the sequence of a floor once.",
        "A trader's order is executed twice.",
    ),
    Property(
        "T6",
        "reports are a legal path",
        "An order is refused, or works until it is filled, cancelled or expired, and is not heard of before or after."
        " Nothing trades, is cancelled or expires beyond what is left of it; a new total is never below what is filled;"
        " all or nothing is one of the two.",
        "A trader cannot tell what became of his order.",
    ),
    Property(
        "T7",
        "bids are sealed until the close",
        "A floor takes a sealed bid before the close, by its commitment and its ceiling alone, and opens it from the"
        " close on, by what was committed to and not above the ceiling.",
        "A bidder, or a receiver, could bid with the others' bids before his eyes.",
    ),
    Property(
        "T8",
        "every trader's order is kept",
        "What an account enters stands in the sequence in the order in which it entered it, while its source keeps its"
        " outbox. A floor takes the events of a token in the order that the token's shuffle key gives them. Over many"
        " contests each pair of cities shares the first places as the shuffle's formula says, within .01.",
        "An order is overtaken by a later one of its own trader, or nearness wins.",
    ),
)

PROPERTIES: Mapping[str, Property] = {each.name: each for each in _ALL}


def title(names: str) -> str:
    """The title of a property, or of several: ``S3, S4``."""
    return ", ".join(PROPERTIES[name].title for name in names.split(", "))


def explained(names: Iterable[str]) -> list[str]:
    """A line for each different property among some names: what was promised, and what its breach means."""
    known = [PROPERTIES[name] for name in dict.fromkeys(names) if name in PROPERTIES]
    return [f"{each.name} ({each.title}): {each.sentence} Broken: {each.broken}" for each in known]
