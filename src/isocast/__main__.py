"""`isocast`, and `python -m isocast`, which is the same: signals first, then the command with all its imports."""

import _signal  # type: ignore[import-not-found]  # What `signal` is made of: there is nothing to import yet that could be interrupted.
import os
import sys

__all__ = ["main"]

_INTERRUPTED = 130


def _too_early(*_: object) -> None:
    """A signal before there is anything to put away."""
    os.write(2, b"isocast: interrupted\n")
    os._exit(_INTERRUPTED)


def main() -> int:
    """Run one command in this process; a signal at any moment is an end in order and one line."""
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        if _signal.getsignal(number) != _signal.SIG_IGN:  # As under nohup.
            _signal.signal(number, _too_early)
    from isocast.runtime.operate import shutdown  # noqa: PLC0415 - the handlers come first

    shutdown.install()
    try:
        from isocast.cli.main import main as command  # noqa: PLC0415 - takes its time, in which signals come

        shutdown.begun()
        code = command()
    except BaseException as error:
        if not shutdown.cause() or isinstance(error, SystemExit):
            raise
        # Whatever a signal became on its way through imports and libraries.
        code = shutdown.interrupted()
    return shutdown.finish(code)


if __name__ == "__main__":
    sys.exit(main())
