"""What all tests share."""

import re
import signal
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]

# A busy machine is slow, not wrong; a failure prints the line that reproduces it.
settings.register_profile("isocast", deadline=None, print_blob=True)
settings.load_profile("isocast")

# Under nohup, or in the background of a shell, some signals are ignored, and whatever is started ignores them, too. A
# handler of our own is not inherited: commands that tests start hear every signal, and the tests go on ignoring them.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        with suppress(ValueError):  # Not in the first thread.
            signal.signal(_number, lambda *_: None)
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


# ---- which tests run in one process


class TogetherScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of one scope run in one process: what they share is made once, and nothing heavy runs beside itself.

    A file says `xdist_group("name")`; all that is in tests/lake shares one Java; a file with a fixture for the whole
    module is a scope of its own. (`--dist loadgroup` would do the first, but since pytest 9.2 it finds no group.)
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return scope_of(file) or nodeid


@cache
def scope_of(file: str) -> str:
    """The scope of a test file; empty where each test may run anywhere."""
    if file.startswith("tests/lake/"):
        return "spark"
    try:
        text = (ROOT / file).read_text(encoding="utf-8")
    except OSError:
        return ""
    group = re.search(r'xdist_group\("([\w-]+)"\)', text)
    if group:
        return group[1]
    return file if 'scope="module"' in text else ""


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> TogetherScheduling:
    """Instead of those that xdist has."""
    return TogetherScheduling(config, log)
