"""What all tests share."""

import signal
from contextlib import suppress

from hypothesis import settings

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
