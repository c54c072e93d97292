"""A database for tests, by both names: SQLite in a file, and a PostgreSQL of our own where there is one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from isocast.runtime.disk.database import sqlite_url


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """One server for all tests of a process; each empties it first."""
    if missing := postgresql_missing():
        pytest.skip(missing)
    with TemporaryDirectory(prefix="isocast-pg-", dir="/tmp") as folder, postgresql(Path(folder)) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "books.db")
    import psycopg  # noqa: PLC0415 - where there is a server

    url: str = request.getfixturevalue("postgresql_url")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return url


def postgresql_missing() -> str:
    """Why there is no PostgreSQL here; empty: there is."""
    wanted = ["initdb", "postgres", *(["setpriv"] if os.geteuid() == 0 else [])]
    missing = [name for name in wanted if shutil.which(name) is None]
    return f"no PostgreSQL on this machine: {', '.join(missing)} not on the path" if missing else ""


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """A server of our own, on a socket in a folder; the URL of its database."""
    data = folder / "data"
    # It refuses to run as root; whoever else we are, it runs as us.
    as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    if as_other:
        folder.chmod(0o711)
        data.mkdir()
        os.chown(data, 65_534, 65_534)
        (folder / "socket").mkdir(mode=0o777)
        (folder / "socket").chmod(0o777)
    else:
        (folder / "socket").mkdir()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    initdb = [*as_other, "initdb", "-D", str(data), "-U", "office", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]
    subprocess.run(initdb, check=True, cwd="/", **quiet)  # type: ignore[call-overload]
    options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder / 'socket'}", "-c", "fsync=off"]
    server = subprocess.Popen([*as_other, "postgres", "-D", str(data), *options], cwd="/", **quiet)  # type: ignore[call-overload]
    try:
        url = f"postgresql://office@/postgres?host={folder / 'socket'}"
        _wait_for(url, server)
        yield url
    finally:
        server.send_signal(signal.SIGINT)  # At once, whoever is still connected.
        server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    import psycopg  # noqa: PLC0415 - where there is a server

    for _ in range(600):
        if server.poll() is not None:
            break
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("PostgreSQL did not start")
