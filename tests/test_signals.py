"""Tests set the signals that they need: what they start hears all of them, whoever runs the tests."""

import subprocess
import sys
from pathlib import Path

CHILD = "import signal; print(*[signal.getsignal(one) is signal.SIG_IGN for one in (1, 2, 15)])"
NOHUP = f"""
import signal, subprocess, sys
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [1])
import runpy
runpy.run_path({str(Path(__file__).with_name("conftest.py"))!r})
signal.raise_signal(signal.SIGHUP)  # Which the tests themselves go on ignoring.
subprocess.run([sys.executable, "-S", "-c", {CHILD!r}], check=True)
"""


def test_what_tests_start_ignores_no_signal_even_under_nohup() -> None:
    done = subprocess.run([sys.executable, "-c", NOHUP], capture_output=True, check=True, encoding="ascii")
    assert done.stdout == "False False False\n"
