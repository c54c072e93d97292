"""The switch: one process that owns every site's TAP device and forwards frames when due; and its handle outside.

``python -m isocast.trials.lab.switch FD`` reads a world from that socket, builds it, hands the namespaces back, and
forwards until the other end closes. Then it kills whatever still runs in its namespaces, and all is gone with it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from isocast.terms.instants import MILLISECOND, SECOND
from isocast.trials.lab.fabric import (
    HEADER_BYTES,
    Fabric,
    SiteNamespace,
    become_real_time,
    device_drops,
    evict,
    gain_privilege,
    make_namespaces,
    namespace_number,
)
from isocast.trials.lab.report import LabReport, LatenessRecord, LinkState
from isocast.trials.lab.world import LabWorld, Link, LinkChange, world_from_json

__all__ = ["Switch", "main"]


_TICK_NS = 10 * MILLISECOND
_READ_BURST = 64
"""Frames read from one site before the next one's turn: no site keeps the others waiting for more than 1 ms."""
_FORWARD_BURST = 128
"""Frames forwarded before the sites are read again, so that arrivals are stamped when they come."""
_VLAN_TAG_BYTES = 4
_EVICTION_S = 5.0


class Switch:
    """The loop round a fabric, and the answers to requests on `control`."""

    def __init__(
        self, world: LabWorld, namespaces: Sequence[SiteNamespace], control: socket.socket, facts: Mapping[str, bool]
    ) -> None:
        """Ready to run; `facts` are those of the report that never change."""
        self._world = world
        self._namespaces = namespaces
        self._control = control
        self._facts = facts
        self._fabric = Fabric(world.impairments, len(world.sites), world.seed)
        self._lateness = LatenessRecord()
        self._taps = [site.tap for site in namespaces]
        self._port_of = {tap: port for port, tap in enumerate(self._taps)}
        self._frame_bytes = world.mtu + HEADER_BYTES + _VLAN_TAG_BYTES
        self._frames_out = 0
        self._write_failures = 0
        self._parent = os.getppid()
        self._next_tick = time.monotonic_ns() + _TICK_NS
        self._realtime_offset = time.time_ns() - time.monotonic_ns()
        self._received = b""
        self._ending = False

    def end(self) -> None:
        """Leave the loop at the next tick."""
        self._ending = True

    def run(self) -> None:
        """Forward until the other end is gone, or `end`."""
        control = self._control.fileno()
        waiting = [*self._taps, control]
        while not self._ending:
            due = self._fabric.next_departure()
            until = self._next_tick if due is None or due > self._next_tick else due
            wait = max(until - time.monotonic_ns(), 0) / SECOND
            ready = select.select(waiting, (), (), wait)[0]
            for fd in ready:
                if fd != control:
                    self._read(fd, self._port_of[fd])
            self._forward()
            if time.monotonic_ns() >= self._next_tick:
                self._tick()
            if control in ready:
                self._hear()  # Frames first; and an answer knows how late we were until now.

    def _read(self, tap: int, port: int) -> None:
        """What a site has sent. Each frame is stamped after it was read: no delay is ever short."""
        read, size, enter, clock = os.read, self._frame_bytes, self._fabric.enter, time.monotonic_ns
        with suppress(BlockingIOError):
            for _ in range(_READ_BURST):
                frame = read(tap, size)
                enter(frame, port, clock())

    def _forward(self) -> None:
        """What is due, to its sites."""
        taps, leave, clock = self._taps, self._fabric.leave, time.monotonic_ns
        for _ in range(_FORWARD_BURST):
            departure = leave(clock())
            if departure is None:
                return
            due, _, port, frame = departure
            try:
                os.write(taps[port], frame)
            except OSError:
                # The device has no room, or a resident with root's powers took it down.
                self._write_failures += 1
                continue
            self._frames_out += 1
            self._lateness.forwarded(due, clock(), self._realtime_offset)

    def _tick(self) -> None:
        """Measure lateness, and end if the lab has gone."""
        now = time.monotonic_ns()
        self._realtime_offset = time.time_ns() - now
        self._lateness.woke(self._next_tick, now, self._realtime_offset)
        self._next_tick = now + _TICK_NS
        if os.getppid() != self._parent:
            self._ending = True

    # ---- commands

    def _hear(self) -> None:
        """Whole lines of JSON, each answered by one; nothing at all is the end."""
        data = b""
        with suppress(ConnectionError):
            data = self._control.recv(1 << 16)
        if not data:
            self._ending = True
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            with suppress(ConnectionError):
                self._control.sendall(json.dumps(self._answer(json.loads(line))).encode() + b"\n")

    def _answer(self, request: Mapping[str, Any]) -> object:
        links = self._fabric.select(request.get("pairs", ()))
        match request["command"]:
            case "cut" | "heal":
                for link in links:
                    link.cut = request["command"] == "cut"
            case "change":
                change = LinkChange(**request["change"])
                for link in links:
                    link.impairment = change.apply(link.impairment)
            case "links":
                return [asdict(self._link_state(*entry)) for entry in self._fabric.links()]
            case "report":
                report = self._report().as_json()
                if request["reset"]:
                    self._lateness = LatenessRecord()
                return report
            case _:
                pass
        return None

    def _link_state(self, here: int, there: int, link: Link) -> LinkState:
        return LinkState(
            self._world.sites[here].name,
            self._world.sites[there].name,
            link.impairment.delay_ns,
            link.impairment.jitter_ns,
            link.impairment.loss,
            link.cut,
            link.frames_taken,
            link.frames_lost,
            link.frames_cut,
        )

    def _report(self) -> LabReport:
        fabric = self._fabric
        return LabReport(
            forwards=self._lateness.forwards.summary(),
            wakeups=self._lateness.wakeups.summary(),
            episodes=self._lateness.episodes(),
            frames_in=fabric.frames_in,
            frames_out=self._frames_out,
            frames_lost=fabric.frames_lost,
            frames_cut=fabric.frames_cut,
            frames_ignored=fabric.frames_ignored,
            frames_refused=fabric.frames_refused + self._write_failures,
            device_drops=device_drops(self._namespaces),
            on_the_way=len(fabric),
            **self._facts,
        )


def _read_line(control: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        data = control.recv(1 << 16)
        if not data:
            sys.exit(1)
        received += data
    return received


def _send_ready(control: socket.socket, namespaces: Sequence[SiteNamespace], facts: Mapping[str, bool]) -> None:
    """Send the descriptors of the namespaces, in which commands can be run: that of users first, if there is one."""
    fds = [site.namespace for site in namespaces]
    user = [os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)] if facts["user_namespace"] else []
    socket.send_fds(control, [json.dumps({"ready": facts}).encode() + b"\n"], [*user, *fds])
    for fd in user:
        os.close(fd)


def main(arguments: Sequence[str]) -> int:
    """Build, forward, clear up."""
    control = socket.socket(fileno=int(arguments[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal's Ctrl-C is for whoever started us.
    request = json.loads(_read_line(control))
    world = world_from_json(request["world"])
    real_time = become_real_time()
    try:
        user_namespace = gain_privilege(user_namespace=request["user_namespace"])
        namespaces = make_namespaces(world)
    except OSError as error:
        refusal = {"refused": {"number": error.errno or 0, "reason": str(error.strerror or error)}}
        control.sendall(json.dumps(refusal).encode() + b"\n")
        return 1
    facts = {"real_time": real_time, "user_namespace": user_namespace}
    switch = Switch(world, namespaces, control, facts)
    signal.signal(signal.SIGTERM, lambda *_: switch.end())
    gc.collect()
    gc.freeze()
    gc.disable()  # Frames form no cycles, and a collection would be late for all of them.
    try:
        _send_ready(control, namespaces, facts)
        switch.run()
    finally:
        for site in namespaces:
            os.close(site.tap)  # Whoever has not entered by now finds no device, and leaves (see `enter`).
        evict({namespace_number(site.namespace) for site in namespaces}, _EVICTION_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
