"""Two markets, fresh from `isocast config example`, run beside each other on one machine as they are."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from isocast.cli.main import main

TRADE = '{"kind": "trade", "floor": "XLON", "symbol": "%s", "price": "72.5", "quantity": 100}\n'


def isocast(folder: Path, *words: str, told: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "isocast", *words],
        cwd=folder,
        input=told,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def until_ready(up: subprocess.Popen[str]) -> None:
    assert up.stdout is not None
    for line in up.stdout:
        if json.loads(line)["event"] == "all-ready":
            return
    raise AssertionError("it ended before all were ready")


@pytest.mark.long
def test_two_fresh_markets_just_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    with ExitStack() as running:
        markets = []
        for folder in folders:
            folder.mkdir()
            file = str(folder / "market.toml")
            assert main(["config", "example", "--cities", "London,Paris", "--out", file]) == 0
            assert main(["keys", "init", "--config", file]) == 0
            words = [sys.executable, "-m", "isocast", "up", "--config", file, "--json"]
            markets.append(running.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, encoding="utf-8")))
            running.callback(markets[-1].send_signal, signal.SIGTERM)
            # The next file takes a slot that nobody uses: one of a market that is not up yet might be taken again.
            until_ready(markets[-1])
        for folder, symbol in zip(folders, ("ONE", "OTHER"), strict=True):
            isocast(folder, "publish", "--source", "london-floor", told=TRADE % symbol)
        for folder, symbol in zip(folders, ("ONE", "OTHER"), strict=True):
            row = json.loads(isocast(folder, "listen", "--from", "beginning", "--count", "1", "--json"))
            assert (row["sequence"], row["symbol"]) == (1, symbol)
        capsys.readouterr()
        assert main(["up", "--config", str(folders[0] / "market.toml")]) == 3
        assert "every node of example runs already" in capsys.readouterr().err
        for market in markets:
            market.send_signal(signal.SIGTERM)
            assert market.wait(60) == 0
