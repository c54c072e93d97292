"""The four timers of the event-driven protocol, symbol beside name (protocol §9).

T_a  token_ack_ns      a token site that has been idle for this long confirms the token by itself
R_t  token_resend_ns   between two copies of an acknowledgement whose pass is not confirmed
R_s  source_resend_ns  between two copies of a message that is not acknowledged
R_n  nack_resend_ns    between two requests for a missing item
k_r  retries_max       attempts, of any kind, before the ring is suspected
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.terms.errors import LocalProtocolError

__all__ = ["Timers"]


@dataclass(frozen=True, slots=True)
class Timers:
    """The times of one ring, in nanoseconds."""

    token_ack_ns: int
    """T_a."""
    token_resend_ns: int
    """R_t: an idle successor must have had time to confirm, hence T_a < R_t (and T_a+2d, when d is known)."""
    source_resend_ns: int
    """R_s."""
    nack_resend_ns: int
    """R_n."""
    retries_max: int
    """k_r."""

    def __post_init__(self) -> None:
        """Refuse what §2.1 cannot work with."""
        if self.token_ack_ns <= 0:
            raise LocalProtocolError("token_ack (T_a) must be positive")
        if self.token_resend_ns <= self.token_ack_ns:
            raise LocalProtocolError("token_resend (R_t) must be longer than token_ack (T_a)")
        if self.source_resend_ns <= 0:
            raise LocalProtocolError("source_resend (R_s) must be positive")
        if self.nack_resend_ns <= 0:
            raise LocalProtocolError("nack_resend (R_n) must be positive")
        if self.retries_max < 1:
            raise LocalProtocolError("retries_max (k_r) must be at least 1")
