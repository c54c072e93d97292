"""An event loop in a thread of its own: how programs without one use what needs one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from threading import Thread, current_thread
from typing import Any, TypeVar

from isocast.terms.errors import IsocastError

__all__ = ["LoopThread"]

ResultT = TypeVar("ResultT")


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A program that forgets to close it ends all the same.
        self._thread = Thread(target=self._loop.run_forever, name="isocast", daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """The result of the work; a caller that is interrupted leaves nothing under way."""
        if self._loop.is_closed() or current_thread() is self._thread:
            work.close()
            raise IsocastError("this connection is closed: connect again")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def next_of(self, stream: AsyncIterator[ResultT]) -> ResultT:
        """Its next one; StopIteration at its end, and when the loop is closed."""
        if self._loop.is_closed():
            raise StopIteration

        async def following() -> ResultT | None:
            return await anext(stream, None)

        found = self.wait_for(following())
        if found is None:
            raise StopIteration
        return found

    def end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close something; with the loop everything was closed."""
        if not self._loop.is_closed():
            self.wait_for(close())

    def close(self) -> None:
        """End what is under way, and the thread."""
        if self._loop.is_closed():
            return
        self.wait_for(self._settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _settle(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()
