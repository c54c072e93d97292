"""Nodes that lie: a broken promise's proof goes to disk with an alarm, and is remembered after a restart."""

from __future__ import annotations

from isocast.ring.court import Court, Evidence
from isocast.runtime.disk.evidence_store import keep_evidence, kept_evidence
from isocast.runtime.hosts.process import Context
from isocast.terms.ids import NodeId
from isocast.wire.packets import Token

__all__ = ["convicted_before", "note_conviction", "note_missed_order"]


def convicted_before(context: Context, court: Court) -> list[NodeId]:
    """Whom the proofs on this node's disk convict."""
    kept = [evidence for _, evidence in kept_evidence(context.directory) if evidence is not None]
    return sorted({evidence.author for evidence in kept if court.proves(evidence)})


def note_conviction(context: Context, evidence: Evidence) -> None:
    """Keep a proof, and tell people."""
    path = keep_evidence(context.directory, evidence)
    context.counters.convictions += 1
    name = context.market.name_of(evidence.author)
    what = "contents of token" if isinstance(evidence.first, Token) else "receipts for token"
    context.alarm(
        f"lie-{name}",
        f"{name} signed two {what} {evidence.number} in epoch {evidence.epoch}: it counts in no majority any more",
        f"isocast evidence shows the proof ({path.name}); find out who holds its key, or which disk it lost, remove it"
        " from the ring and add it under a new number",
    )


def note_missed_order(context: Context, author: NodeId, token_number: int) -> None:
    """Tell people who did what only an operator may."""
    name = context.market.name_of(author)
    context.alarm(
        f"order-{name}",
        f"{name} changes the market at token {token_number} without an order of its operator: nobody follows",
        f"find out who holds the key of {name}; where the operator's own key was replaced or revoked, order it anew",
    )
