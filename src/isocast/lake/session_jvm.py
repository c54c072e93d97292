"""What Spark's JVM is started with: how it collects garbage, reads Arrow and says what is wrong."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from isocast.lake.session_archive import archive_options
from isocast.terms.errors import ConfigurationError

__all__ = ["ARROW", "LOG", "jvm_options"]

ARROW = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
"""Arrow checks each access of each value, twice: a tenth of the CPU time of reading. What it reads is pyarrow's."""
LOG = "ISOCAST_SPARK_LOG"
"""A level of Spark's log, for whoever wants to see more than its errors."""

_LEVELS = ("off", "fatal", "error", "warn", "info", "debug", "trace")
_LOG_FILE = Path(__file__).with_name("spark_log.properties")
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_ARCHIVE = re.compile(r"-XX:(?:Archive|AOT|Shared)")
_TRACE_LINES = "100"


def jvm_options(home: Path, given: str = "", environment: Mapping[str, str] = os.environ) -> str:
    """Options of a driver; those that are `given` follow, and their choice of a collector holds."""
    # Java's own log goes to standard output, amid what we print there.
    chosen = [*ARROW, f"-Dlog4j2.configurationFile={_LOG_FILE}", "-Xlog:disable"]
    level = environment.get(LOG)
    if level:
        if level not in _LEVELS:
            raise ConfigurationError(LOG, level, f"one of {', '.join(_LEVELS)}")
        chosen += [f"-Disocast.spark.log={level}", f"-Disocast.spark.trace={_TRACE_LINES}"]
    if not _COLLECTOR.search(given):
        # Nobody waits for a single row: less work in all is worth more than short pauses.
        chosen.append("-XX:+UseParallelGC")
    if not _ARCHIVE.search(given):
        chosen += archive_options(home, environment)
    return shlex.join(chosen)
