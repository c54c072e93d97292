"""How every fuzz target runs: from its seeds on, with the options of libFuzzer that the command line has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris


def fuzz(examine: Callable[[bytes], object], seeds: Iterable[bytes], *options: str) -> None:
    """Fuzz until the time is over, or until `examine` raises. The command line overrides `options`."""
    with TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds):
            (Path(corpus) / f"seed-{number:02}").write_bytes(seed)
        atheris.Setup([sys.argv[0], *options, *sys.argv[1:], corpus], examine)
        atheris.Fuzz()
