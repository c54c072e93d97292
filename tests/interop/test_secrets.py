"""No secret of a running market is where others look: arguments, environment, logs, status pages, errors, dumps."""

import asyncio
import subprocess
import sys
from base64 import b64encode
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.interop.places import QUICK, new_market, own_place
from tests.interop.stage import Stage

from isocast.runtime.hosts import process
from isocast.runtime.market.certificates import init_certificates
from isocast.runtime.market.model import Market
from isocast.runtime.market.tls_files import token_path

NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "tokyo": {"role": "primary-receiver"},
    "nyse": {"role": "primary-source"},
    "xray": {"role": "reformation-server"},
    "archive": {"role": "retransmit-server", "lines": ["london", "paris"]},
    "bank": {"role": "customer", "lines": ["paris", "tokyo"], "retransmit": ["archive"]},
}
PAGES = ("/", "/healthz", "/readyz", "/statusz", "/metrics", "/metrics/detail")


def secrets_of(market: Market) -> dict[str, bytes]:
    """Every secret that a file of the market holds, as bytes and as people write bytes."""
    found: dict[str, bytes] = {}
    for path in [*market.keys_directory.rglob("*.key"), token_path(market)]:
        for number, text in enumerate(path.read_text(encoding="ascii").splitlines()):
            if text.startswith(("#", "-----")) or not text.strip():
                continue
            name = f"{path.name}:{number}"
            found[name] = text.strip().encode()
            try:
                raw = bytes.fromhex(text)
            except ValueError:
                continue
            found |= {
                f"{name} raw": raw,
                f"{name} base64": b64encode(raw),
                f"{name} capitals": raw.hex().upper().encode(),
            }
    return found


def check_clean(where: str, content: bytes, secrets: dict[str, bytes]) -> None:
    shown = [name for name, secret in secrets.items() if secret in content]
    assert not shown, f"{where} shows {shown}"


def test_no_secret_is_where_others_look(tmp_path: Path) -> None:
    with ExitStack() as opened:
        place = opened.enter_context(own_place())
        market = new_market(tmp_path, place, NODES, timing=QUICK)
        init_certificates(market)
        secrets = secrets_of(market)
        assert len(secrets) > 12
        stage = opened.enter_context(Stage(market))
        stage.publish()
        stage.until_whole()
        stage.until_published(3)
        statuses = stage.all_statuses()
        assert statuses.keys() == NODES.keys()
        for name, status in statuses.items():
            where = Path(f"/proc/{status.pid}")
            for file in ("cmdline", "environ"):
                check_clean(f"{file} of {name}", (where / file).read_bytes(), secrets)
            limits = (where / "limits").read_text().splitlines()
            assert next(line for line in limits if line.startswith("Max core file size")).split()[4:6] == ["0", "0"]
        for name in NODES:
            plan = market.node(name)
            for page in PAGES:
                shown = stage.call(page_of(plan.address, plan.http_port, page))
                check_clean(f"{page} of {name}", shown, secrets)
        stage.kill("paris")
        stage.until_ready("paris")
    for path in tmp_path.rglob("*"):
        if path.is_file() and market.keys_directory not in path.parents:
            check_clean(str(path), path.read_bytes(), secrets)


async def page_of(address: str, port: int, page: str) -> bytes:
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(f"GET {page} HTTP/1.1\r\n\r\n".encode())
    shown = await reader.read()
    writer.close()
    assert b" 200 " in shown or b" 503 " in shown
    return shown


def test_a_nodes_memory_is_no_debuggers(tmp_path: Path) -> None:
    """In a process of its own: a process that has forbidden it cannot allow it to the tests again."""
    script = tmp_path / "probe.py"
    script.write_text(
        "import ctypes, resource\n"
        "from isocast.runtime.net.kernel import forbid_dumps\n"
        "asked = forbid_dumps(), bool(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))  # PR_GET_DUMPABLE\n"
        "print(*asked, resource.getrlimit(resource.RLIMIT_CORE))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=2) == ["True", "False", "(0, 0)\n"]


@pytest.mark.parametrize("dumpable, expected", [(False, ["forbidden"]), (True, [])])
def test_a_node_forbids_it_unless_the_market_says_otherwise(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dumpable: bool,  # noqa: FBT001
    expected: list[str],
) -> None:
    class NotToday(Exception):  # noqa: N818
        pass

    told: list[str] = []

    def refuse(*_: object) -> None:
        raise NotToday

    with own_place() as place:
        market = replace(new_market(tmp_path, place, NODES), dumpable=dumpable)
        monkeypatch.setattr(process, "forbid_dumps", lambda: told.append("forbidden"))
        monkeypatch.setattr(process, "NodeProcess", refuse)
        with pytest.raises(NotToday):
            asyncio.run(process.run_node(market, market.node("london")))
    assert told == expected
