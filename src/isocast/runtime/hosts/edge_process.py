"""A receiver's edge: a process of its own that sends the narrow stripes (§4.4).

The receiver gives it three things: its journal; a note on disk of every plan that a released token announced, written
before anything of that token is journalled; and through a pipe, which token went out last, the empty ones too. The pipe
never makes the receiver wait, and its end is the end of the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from struct import Struct
from typing import Any

from isocast.ring.receiver import Receiver
from isocast.runtime.edge.narrow.plans import PLAN_NOTES, PlanNote, PlanNotes
from isocast.runtime.hosts.process import Context
from isocast.runtime.watch.counters import NodeGauges
from isocast.wire.packets import ControlKind, Token

__all__ = ["TOKEN_PASSED", "EdgeProcess", "NoEdge", "edge_process"]

TOKEN_PASSED = Struct("<QqQ")
"""Token, its instant, and the sequence that comes next: what goes through the pipe."""
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_STEADY_S = 30.0
_STOP_S = 3.0
_REFUSED_PAUSE_S = 30.0
"""Before one that refused its input is asked again: a plan's file may have come."""
_BAD_INPUT = 2
_LINE_BYTES = 1 << 20
_NOTHING_YET: dict[str, Any] = {
    "plan": 0, "digest": "", "plans": [], "stripes": 0, "next_sequence": 1, "token": 0, "packets": 0, "messages": 0,
    "ip_bytes": 0, "heartbeats": 0, "proofs": 0, "not_sent": 0, "not_sent_messages": 0, "late_ns": 0, "latest_ns": 0,
    "waiting": 0, "not_carried": 0, "conflated": {}, "requests": 0, "answered": 0, "refused": 0,
}  # fmt: skip
"""Of a process that ended before it said anything."""


def edge_process(context: Context, receiver: Receiver) -> NoEdge:
    """For a receiver that serves customers in a market with narrow stripes; for any other one that does nothing."""
    if context.market.edge is None or not context.plan.line:
        return NoEdge()
    return EdgeProcess(context, receiver)


class NoEdge:
    """Of a receiver that sends no narrow stripes."""

    def completed(self, token: Token) -> None:
        """The receiver holds a token."""

    def releasing(self, upto: int) -> None:
        """Something of a token is about to be journalled."""

    def passed(self, _: int = 0) -> None:
        """The machine made a step."""

    def start(self) -> None:
        """The receiver runs."""

    async def stop(self) -> None:
        """The receiver ends."""

    def fill(self, gauges: NodeGauges) -> None:
        """Say how it is."""


class EdgeProcess(NoEdge):
    """Starts it, tells it, and starts it again."""

    def __init__(self, context: Context, receiver: Receiver) -> None:
        """Nothing is started yet."""
        self.status: dict[str, Any] = {}
        """What it said last of itself."""
        self._context = context
        self._receiver = receiver
        self._notes = PlanNotes(context.directory / PLAN_NOTES)
        for _ in self._notes.read():
            pass
        self._held: dict[int, Token] = {}
        """Tokens that announce plans, and are not released."""
        for number, entry in receiver.ledger.entries.items():
            if number > receiver.releaser.released:
                self.completed(entry.token)
        self._told = 0
        self._child: Process | None = None
        self._pipe = -1
        self._why = ""
        """Why the last process ended, in its own words."""
        self._ended = ""
        self._speaks = False
        """Whether the process that runs has said how it is: only then are the narrow stripes sent."""
        self._running: asyncio.Task[None] | None = None
        context.operations["edge"] = self._tell

    # ---- what the receiver says

    def completed(self, token: Token) -> None:
        """The receiver holds a token: perhaps another of its number than before, if a ring was cut back."""
        if any(entry.kind is ControlKind.STRIPE_PLAN for entry in token.control):
            self._held[token.token_number] = token
        else:
            self._held.pop(token.token_number, None)

    def releasing(self, upto: int) -> None:
        """Before anything of a token is journalled: note the plans of the tokens up to it."""
        # Held since they were completed: the machine may forget a token in the very step that releases it.
        for number in sorted([number for number in self._held if number <= upto]):
            token = self._held.pop(number)
            for entry in token.control:
                if entry.kind is ControlKind.STRIPE_PLAN:
                    self._notes.append(PlanNote(number, token.instant, token.first_sequence, entry))

    def passed(self, _: int = 0) -> None:
        """After a step of the machine: tell which token went out whole."""
        releaser = self._receiver.releaser
        number = releaser.released
        if number <= self._told or releaser.offset:
            return
        self.releasing(number)
        self._told = number
        if releaser.passed and self._pipe >= 0:
            # What does not fit the pipe at once is not said: the journal says it too, a little later.
            with suppress(OSError):
                os.write(self._pipe, TOKEN_PASSED.pack(number, releaser.passed, releaser.next_sequence))

    # ---- the process

    def start(self) -> None:
        """Once the receiver runs."""
        self._running = self._context.loop.create_task(self._supervise(), name="edge")

    async def stop(self) -> None:
        """End it in order."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        child, self._child = self._child, None
        if child is None or child.returncode is not None:
            return
        # Its pipe was closed, and that is its end. `terminate` would first look whether the child has ended already,
        # and so take its exit code away from who waits for it.
        try:
            async with asyncio.timeout(_STOP_S):
                await child.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            await child.wait()

    async def _supervise(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            begun = self._context.loop.time()
            code = await self._live()
            why = f": {self._why}" if self._why else ""
            if code == _BAD_INPUT:
                self._ended = f"the process of the narrow stripes refused its input{why}"
                remedy = f"correct it: the process is started again every {_REFUSED_PAUSE_S:.0f} s"
                self._context.alarm("edge-refused", self._ended, remedy)
                await asyncio.sleep(_REFUSED_PAUSE_S)
                continue
            if self._context.loop.time() - begun > _STEADY_S:
                pause_s = _FIRST_PAUSE_S
            self._ended = f"the process of the narrow stripes ended ({code}){why}"
            self._context.alarm("edge-ended", self._ended, "it is started again")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _live(self) -> int:
        market, plan = self._context.market, self._context.plan
        command = (sys.executable, "-m", "isocast", "edge", "send", "--config", market.file, "--name", plan.name)
        ours, theirs = -1, -1
        self._why, self._speaks = "", False
        try:
            theirs, ours = os.pipe()
            os.set_blocking(ours, False)
            child = await asyncio.create_subprocess_exec(*command, stdin=theirs, stdout=PIPE, limit=_LINE_BYTES)
            os.close(theirs)
            self._child, self._pipe, theirs = child, ours, -1
            await self._hear(child)
            return await child.wait()
        finally:
            # Its end is the child's: it reads nothing more, and goes.
            self._pipe = -1
            for handle in (ours, theirs):
                if handle >= 0:
                    os.close(handle)

    async def _hear(self, child: Process) -> None:
        while child.stdout is not None and (line := await child.stdout.readline()):
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if not isinstance(said, dict):
                continue
            if isinstance(said.get("status"), dict):
                self.status, self._ended, self._speaks = said["status"], "", True
            if isinstance(said.get("ended"), str):
                self._why = said["ended"]
            if isinstance(said.get("alarm"), list):
                code, text, remedy = (str(part) for part in said["alarm"])
                self._context.alarm(code, text, remedy)

    def fill(self, gauges: NodeGauges) -> None:
        """What the process said last of itself."""
        status = self.status
        if self.pid is None or not self._speaks:
            gauges.edge_waits = self._ended or "the process of its narrow stripes is starting"
            return
        gauges.stripe_plan, gauges.stripe_packets = status["plan"], status["packets"]
        gauges.stripe_waiting, gauges.stripe_conflated = status["waiting"], sum(status["conflated"].values())
        gauges.stripe_late_ns = status["late_ns"]

    @property
    def pid(self) -> int | None:
        """Of the process that runs."""
        return None if self._child is None or self._child.returncode is not None else self._child.pid

    async def _tell(self, _: object) -> dict[str, object]:
        status = self.status or (_NOTHING_YET if self._ended else {})
        # What it said last is not how it is: a process that has ended sends nothing.
        return {"pid": self.pid, **status, **({"blocked": self._ended} if self._ended else {})}
