"""A source's window sizes itself: large enough for what the ring takes in one token, and no larger.

Every token is one round: what was sent well before its instant should be named in it. So the messages that a token
acknowledges are the product of bandwidth and delay, and the window that carries most is about that many.

1. While the window is what holds the source back, it grows: twice as large until growth stops paying, then by a fixed
   step, the same for every source.
2. Growth has to pay. If a larger window brings less than two fifths of its share in acknowledged messages, the ring is
   full: the window goes back to what it was, and rests.
3. Tokens that acknowledge less than two fifths of a full window say that the rest only waits in queues: it shrinks.
4. Tokens that come late, a message that two tokens in a row omit, and a reformation are signs of overload: it shrinks
   at once, though not below what the ring takes. While all is acknowledged, such a sign only puts growth off.

Growth by a fixed step and shrinking by a share make the windows of competing sources equal in the long run (Chiu and
Jain). Random losses alone do not shrink a window: growth keeps paying there. W of the market is the most: receivers
drop what is further ahead. The grants of tokens are applied on top.
"""

from __future__ import annotations

from fractions import Fraction

__all__ = ["FIRST_WINDOW", "SendWindow"]

FIRST_WINDOW = 1_024
"""Where a source begins: no burst of an ordinary floor waits for the window to grow."""
LEAST_WINDOW = 64
_STEPS = 32
"""Steps from nothing to the most."""
_PAYS = Fraction(2, 5)
"""Of its share, that a larger window must bring."""
_FULL = Fraction(2, 5)
"""Of a window, that a token acknowledges at least unless the rest waits in queues."""
_SHRUNK = Fraction(4, 5)
_CUT = Fraction(7, 10)
_ROUNDS = 3
"""Tokens over which a window is judged, behind one that still acknowledges what the window before let out."""
_REST = 16
"""Tokens before growth is tried again, and fewer between two cuts."""


class SendWindow:
    """How many messages a source may have sent that no token has acknowledged."""

    def __init__(self, most: int) -> None:
        """Between one message and the market's W."""
        self._most = most
        self._least = min(LEAST_WINDOW, most)
        self._step = max(most // _STEPS, 1)
        self.size = min(FIRST_WINDOW, most)
        self._doubling = True
        self._rest = 0
        self._cut_rest = 0
        self._tokens = -1
        self._total = 0
        self._before: tuple[int, Fraction] | None = None
        """The last smaller window, and what tokens acknowledged of it."""

    def token(self, acknowledged: int, tokens: int = 1, *, limited: bool, overloaded: bool) -> None:
        """A token has come, `tokens` behind the last one that was heard.

        `limited`: the window was full since then. `overloaded`: it came late, or left out what the last one left out.
        """
        self._rest = max(self._rest - tokens, 0)
        self._cut_rest = max(self._cut_rest - tokens, 0)
        if not limited:
            # The application has no more to say: that tells nothing of the ring.
            self._begin()
            return
        if self._tokens >= 0:
            self._total += acknowledged
            self._tokens += tokens
        else:
            self._tokens = 0
        if overloaded:
            self._overload(acknowledged, tokens)
        elif self._tokens >= (1 if self._doubling else _ROUNDS):
            self._judge(Fraction(self._total, self._tokens))

    def reformed(self) -> None:
        """A new ring: the old one may have failed under what it was given."""
        self._change(max(int(self.size * _CUT), self._least))
        self._doubling, self._before, self._rest = False, None, 0

    def _judge(self, carried: Fraction) -> None:
        """What tokens acknowledge of this window decides on the next."""
        size, before = self.size, self._before
        if carried < size * _FULL:
            self._doubling, self._before = False, None
            self._change(max(int(size * _SHRUNK), int(carried), self._least))
        elif before is not None and size > before[0] and carried < self._due(before):
            self._doubling, self._before, self._rest = False, None, _REST
            self._change(before[0])
        elif self._rest or size >= self._most:
            self._before = None
            self._begin()
        else:
            self._before = size, carried
            self._change(min(2 * size if self._doubling else size + self._step, self._most))

    def _due(self, before: tuple[int, Fraction]) -> Fraction:
        """What growth from there must bring to have paid."""
        size, carried = before
        return carried * (1 + _PAYS * Fraction(self.size - size, size))

    def _overload(self, acknowledged: int, tokens: int) -> None:
        """Shrink once per load that is under way, to no less than what the ring takes."""
        carried = self._total // self._tokens if self._tokens > 0 else acknowledged // tokens
        if self._cut_rest or carried >= self.size:
            self._begin()
            return
        self._doubling, self._before, self._rest = False, None, max(self._rest, _REST // 2)
        self._cut_rest = 1 + _ROUNDS
        self._change(max(int(self.size * _CUT), carried, self._least))

    def _change(self, size: int) -> None:
        self.size = size
        self._begin()

    def _begin(self) -> None:
        """Judge anew: the next token still acknowledges what the window before let out."""
        self._tokens, self._total = -1, 0
