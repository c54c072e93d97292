"""`isocast lake` where the extra `spark` is not installed: one line that says how to have it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.lake.markets import write_market

CODE = """
import sys
sys.modules["pyspark"] = None
import contextlib, io, json
from isocast.cli.main import main
found = {}
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["lake", *words])
    found[words[0]] = [code, out.getvalue(), err.getvalue()]
print(json.dumps(found))
"""


def test_every_command_says_what_to_install(tmp_path: Path) -> None:
    journals = str(write_market(tmp_path / "market", receivers=1, stripes=(0,), events=60).path)
    lake = str(tmp_path / "lake")
    commands = [
        ["run", "--journals", journals, "--lake", lake],
        ["stream", "--journals", journals, "--lake", lake, "--available-now"],
        ["bars", "--lake", lake],
        ["audit", "--journals", journals],
        ["fairness", "--journals", journals],
        ["stripes", "--journals", journals],
        ["prepare"],
    ]
    said = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(commands)], capture_output=True, text=True, check=True
    )
    for name, (code, out, err) in json.loads(said.stdout).items():
        assert (name, code, out) == (name, 2, "")
        assert err.count("\n") == 1, (name, err)
        assert "Spark is missing (pyspark" in err, name
        assert "pip install 'isocast[spark]'" in err, name
    assert not Path(lake).exists()
