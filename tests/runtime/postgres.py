"""A PostgreSQL of our own, on a socket in a folder, that can be killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

__all__ = ["PostgreSQL", "postgresql_missing"]

_QUIET: Final[dict[str, Any]] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
_PATIENCE_S: Final = 60.0


def postgresql_missing() -> str:
    """Why there is no PostgreSQL here; empty: there is."""
    wanted = ["initdb", "postgres", *(["setpriv"] if os.geteuid() == 0 else [])]
    missing = [name for name in wanted if shutil.which(name) is None]
    return f"no PostgreSQL on this machine: {', '.join(missing)} not on the path" if missing else ""


class PostgreSQL:
    """One server and its database."""

    def __init__(self, folder: Path) -> None:
        """Make the database; nobody serves it yet."""
        self._data = folder / "data"
        socket = folder / "socket"
        self.url = f"postgresql://office@/postgres?host={socket}"
        self._process: subprocess.Popen[bytes] | None = None
        # It refuses to run as root; whoever else we are, it runs as us.
        self._as = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        socket.mkdir()
        if self._as:
            folder.chmod(0o711)
            socket.chmod(0o777)
            self._data.mkdir()
            os.chown(self._data, 65_534, 65_534)
        initdb = ["initdb", "-D", str(self._data), "-U", "office", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]
        subprocess.run([*self._as, *initdb], check=True, cwd="/", **_QUIET)
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={socket}", "-c", "fsync=off"]
        self._command = [*self._as, "postgres", "-D", str(self._data), *options]

    def start(self) -> None:
        """Serve; after a kill, once the killed one's children have gone."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            process = subprocess.Popen(self._command, cwd="/", **_QUIET)
            if self._answers(process, until):
                self._process = process
                return
            assert time.monotonic() < until, "PostgreSQL did not start"
            time.sleep(0.05)

    def _answers(self, process: subprocess.Popen[bytes], until: float) -> bool:
        import psycopg  # noqa: PLC0415 - where there is a server

        while process.poll() is None and time.monotonic() < until:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return True
        return False

    @property
    def pid(self) -> int:
        """Of the server that runs."""
        return 0 if self._process is None else self._process.pid

    def kill(self) -> None:
        """kill -9, as it stands."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """At once, whoever is still connected."""
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def empty(self) -> None:
        """Forget everything."""
        import psycopg  # noqa: PLC0415 - where there is a server

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
