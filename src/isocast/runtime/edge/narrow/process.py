"""The process of a receiver's narrow stripes, between the pipe that the receiver writes and the one that it reads."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from time import time_ns
from typing import Any

from isocast.runtime.edge.narrow.follower import TokenPassed
from isocast.runtime.edge.narrow.service import EdgeService
from isocast.runtime.hosts.edge_process import TOKEN_PASSED
from isocast.runtime.market.file import load_market
from isocast.terms.errors import ConfigurationError, IsocastError

__all__ = ["run_edge"]

_STATUS_S = 1.0
_STDIN, _STDOUT = 0, 1
_READ = 1 << 16


def run_edge(config: Path, name: str) -> int:
    """Until the pipe ends, or a signal comes."""
    try:
        market = load_market(config)
        plan = market.by_name.get(name)
        if plan is None or not plan.role.is_receiver:
            raise ConfigurationError(market.file, f"nodes.{name}", "is no receiver")
        return asyncio.run(_Running(EdgeService(market, plan, time_ns, _alarm)).run())
    except (IsocastError, OSError) as reason:
        _say({"ended": _why(reason)})
        raise


def _why(reason: IsocastError | OSError) -> str:
    return f"the disk, or the machine: {reason.strerror or reason}" if isinstance(reason, OSError) else str(reason)


def _alarm(code: str, text: str, remedy: str) -> None:
    _say({"alarm": [code, text, remedy]})


def _say(what: dict[str, Any]) -> None:
    with suppress(OSError):
        os.write(_STDOUT, json.dumps(what).encode() + b"\n")


class _Running:
    """The service and its pipes."""

    def __init__(self, service: EdgeService) -> None:
        self._service = service
        self._over = asyncio.Event()
        self._rest = b""

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        os.set_blocking(_STDIN, False)
        with suppress(OSError):  # A file, or nothing: then nobody tells us, and nobody ends us by it.
            loop.add_reader(_STDIN, self._hear)
        work = asyncio.create_task(self._service.run())
        ended = asyncio.create_task(self._over.wait())
        telling = asyncio.create_task(self._tell())
        try:
            await asyncio.wait([work, ended], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                # It ends anyway; a signal that met the event loop while it closes would be a traceback.
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)
            for task in (work, ended, telling):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            self._service.close()
        return 0

    def _hear(self) -> None:
        try:
            raw = os.read(_STDIN, _READ)
        except BlockingIOError:
            return
        if not raw:
            asyncio.get_running_loop().remove_reader(_STDIN)
            self._over.set()
            return
        raw = self._rest + raw
        whole = len(raw) // TOKEN_PASSED.size * TOKEN_PASSED.size
        self._rest = raw[whole:]
        if whole:
            self._service.wake(TokenPassed(*TOKEN_PASSED.unpack_from(raw, whole - TOKEN_PASSED.size)))

    async def _tell(self) -> None:
        while True:
            _say({"status": self._service.status()})
            await asyncio.sleep(_STATUS_S)
