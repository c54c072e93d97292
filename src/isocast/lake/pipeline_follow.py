"""Work that goes on behind other work: silver and gold, while bronze takes the next batch."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread
from types import TracebackType
from typing import Self

__all__ = ["Follower"]


class Follower:
    """Does its work in a thread of its own, once more whenever it was woken; waking it twice may do it once."""

    def __init__(self, work: Callable[[], None]) -> None:
        """The work begins when it is first woken."""
        self._work = work
        self._changed = Condition()
        self._is_due = self._is_over = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._go, name="follower", daemon=True)

    @property
    def is_well(self) -> bool:
        """Whether the work has not failed."""
        return self._error is None

    def wake(self) -> None:
        """There is something to do."""
        with self._changed:
            self._is_due = True
            self._changed.notify()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is due is finished first; its error is raised, unless there is one already."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _go(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_due or self._is_over)
                if not self._is_due:
                    return
                self._is_due = False
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001 - raised where the work was wanted
                self._error = error
                return
