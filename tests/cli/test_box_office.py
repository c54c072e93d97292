"""`isocast box-office` and `isocast subscribe`: a whole sale, and no secret where it does not belong."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from io import StringIO
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from tests.security.package_samples import CHEAP

from isocast.cli.main import main
from isocast.runtime.box_office import running
from isocast.runtime.box_office.office import BoxOffice
from isocast.runtime.market.example import example_text
from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import REGION
from isocast.runtime.market.roster_files import load_roster
from isocast.runtime.market.secret_files import read_secret
from isocast.runtime.market.subscription import Subscription
from isocast.security.keys import SecretKey
from isocast.security.packages import STRETCHING, TEST_CARDS, Stretching, card_secret, open_package
from isocast.security.packages import read_secret as read_typed
from isocast.security.roster import RosterRole
from isocast.security.subscriptions import service_key

SELLING = example_text().replace("[subscriptions]\n", "[subscriptions]\nenabled = true  # Sold.\n")


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ISOCAST_OFFICE_DATABASE", raising=False)
    file = tmp_path / "market.toml"
    file.write_text(SELLING, encoding="utf-8")
    assert main(["keys", "init", "--config", str(file)]) == 0
    return file


class Desk:
    """Commands of one market's box office."""

    def __init__(self, market: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._market = market
        self._capsys = capsys
        capsys.readouterr()

    def __call__(self, *words: str, code: int = 0) -> str:
        assert main(["box-office", *words, "--config", str(self._market)]) == code
        got = self._capsys.readouterr()
        return got.err if code else got.out

    def json(self, *words: str, code: int = 0) -> Any:  # noqa: ANN401 - whatever a command prints
        assert main(["box-office", *words, "--json", "--config", str(self._market)]) == code
        return json.loads(self._capsys.readouterr().out)


@pytest.fixture
def desk(market: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    desk = Desk(market, capsys)
    desk("init")
    desk("plan", "basic", "--services", "base,repair", "--price", "12.50EUR", "--title", "Lines and repairs")
    return desk


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses that cost next to nothing: the commands are tested, not argon2."""
    monkeypatch.setattr(running, "BoxOffice", partial(BoxOffice, stretching=CHEAP, passwords=CHEAP))


def opened(market: Path, package: Path, secret: bytes, least: Stretching = STRETCHING) -> Any:  # noqa: ANN401
    roster = load_roster(load_market(market))
    office = next(member.public for member in roster.members if member.role is RosterRole.BOX_OFFICE)
    return open_package(package.read_bytes(), secret, roster.market, office, time_ns(), least=least)


NAMES = ["init", "plan", "subscriber", "sell", "renew", "revoke", "show", "audit", "token", "certificate", "run"]


def test_a_sale_from_plan_to_keys(desk: Desk, market: Path) -> None:
    """With what the product costs an attacker: 256 MiB for each guess."""
    made = desk.json("subscriber", "Ada")
    order = desk.json("sell", "Ada", "basic", "--out", "ada.package", "--idempotency-key", "k1")
    assert desk.json("sell", "Ada", "basic", "--idempotency-key", "k1") == order
    package = market.parent / "ada.package"
    assert package.stat().st_mode & 0o777 == 0o600
    got = opened(market, package, read_typed(made["secret"]))
    region = SecretKey(read_secret(market.parent / "keys" / REGION))
    day = 86_400 * 10**9
    assert set(got.keys) >= {service_key(region, name, order["first_period"], day) for name in ("base", "repair")}
    assert got.buyer == "Ada"
    assert "until" in desk("show")
    shown = desk.json("show", "Ada")
    assert (len(shown["orders"]), len(shown["invoices"])) == (1, 1)
    kept = b"".join(file.read_bytes() for file in (market.parent / "data" / "box-office").iterdir())
    assert made["secret"].encode() not in kept
    assert made["password"].encode() not in kept


@pytest.mark.usefixtures("cheap")
def test_revocation_and_its_end(desk: Desk) -> None:
    desk.json("subscriber", "Ada")
    desk("sell", "Ada", "basic")
    assert "gets no further package" in desk("revoke", "Ada", "--reason", "late")
    assert "was revoked: ask the operator" in desk("sell", "Ada", "basic", code=2)
    assert "revoked" in desk("show")
    assert "may buy" in desk("revoke", "Ada", "--undo")


def test_the_audit_log_is_checked(desk: Desk) -> None:
    assert "The log is whole; its last link is" in desk("audit")
    assert desk.json("audit", "--after", "1") == {"fault": "", "entries": []}


def test_renewals_by_hand(desk: Desk) -> None:
    assert "0 renewals, 0 orders settled." in desk("renew")
    assert desk.json("renew") == {"settled": [], "renewed": []}


@pytest.mark.usefixtures("cheap")
def test_a_test_card_for_demonstration_is_typed_and_never_given(
    desk: Desk, market: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO(f"{TEST_CARDS[0]}\n"))
    said = desk("subscriber", "Ada", "--demonstrate-card")
    assert "deters, no more" in said
    assert TEST_CARDS[0] not in said
    desk("sell", "Ada", "basic", "--out", "ada.package")
    assert opened(market, market.parent / "ada.package", card_secret(TEST_CARDS[0]), CHEAP).keys
    monkeypatch.setattr(sys, "stdin", StringIO("4929123412341234\n"))
    said = desk("subscriber", "Bob", "--demonstrate-card", code=2)
    assert "never give a real card's" in said
    assert "4929" not in said


@pytest.mark.parametrize(
    "words, reason",
    [
        (["plan", "gold"], "a new plan gold needs --services and --price"),
        (["plan", "gold", "--services", "base", "--price", "cheap"], "such as 12.50EUR"),
        (["plan", "gold", "--services", "gold", "--price", "1EUR"], "is no service"),
        (["sell", "Ada", "basic"], "there is no subscriber 'Ada'"),
        (["show", "Ada"], "there is no subscriber 'Ada'"),
        (["show", "--database", "postgresql://a:b@c/d"], "has a password in it"),
        (["show", "--database", "mysql:"], "must be sqlite:///FILE or postgresql://"),
        (["run", "--address", "0.0.0.0"], "box-office certificate makes what that needs"),  # noqa: S104
        (["certificate"], "name the office's machine"),
        (["certificate", "office.example"], "run this where isocast certs init was run"),
        (["token", "--out", "market.toml"], "cannot be written: File exists"),
    ],
)
def test_bad_input_is_one_sentence(desk: Desk, words: list[str], reason: str) -> None:
    said = desk(*words, code=2)
    assert reason in said
    assert said.count("\n") == 1


def test_what_comes_first_is_said(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk(market, capsys)
    assert "is missing" in desk("show", code=2)
    assert "at most half a period" in desk("init", "--lead", "20h", code=2)
    assert "must be a time with its unit, such as 6h" in desk("init", "--lead", "long", code=2)
    desk("init")
    assert "kept, it exists" in desk("init")
    text = market.read_text(encoding="utf-8")
    market.write_text(text.replace("  # Sold.", '\nperiod = "2h"'), encoding="utf-8")
    assert "subscriptions.period: is not 86400s, which the box office sells" in desk("show", code=2)
    market.write_text(text.replace("enabled = true  # Sold.", "enabled = false"), encoding="utf-8")
    assert "subscriptions.enabled: is false" in desk("show", code=2)
    market.write_text(text, encoding="utf-8")
    (market.parent / "keys" / "identity-box-office.key").unlink()
    assert "identity-box-office.key" in desk("show", code=2)


def test_an_operators_token_is_a_private_file(desk: Desk, market: Path) -> None:
    desk("token", "--out", "operator.token")
    file = market.parent / "operator.token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(file.read_text().strip()) == 43


def test_a_customer_subscribes_at_a_running_office(
    desk: Desk, market: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = desk.json("subscriber", "Ada")
    password = market.parent / "password"
    password.write_text(made["password"])
    password.chmod(0o600)
    assert main(["certs", "init", "--config", str(market)]) == 0
    assert "tls/box-office.crt is new, for 127.0.0.1, office.example" in desk(
        "certificate", "127.0.0.1", "office.example"
    )
    assert "are no names of machines" in desk("certificate", "a b", code=2)
    ca = ["--ca", str(market.parent / "keys" / "tls" / "ca.crt")]
    command = [sys.executable, "-m", "isocast", "box-office", "run", "--port", "0", "--config", str(market)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as office:
        assert office.stderr is not None
        found = re.search(r"https://127\.0\.0\.1:[0-9]+", office.stderr.readline())
        assert found
        assert main(["subscribe", found[0], *ca]) == 0
        assert "Lines and repairs" in capsys.readouterr().out
        buying = ["--plan", "basic", "--pay-by", "test:accepted", "--out", "ada.package"]
        identity = [found[0], *ca, "--as", "Ada", "--password-file", str(password)]
        assert main(["subscribe", *identity, *buying]) == 0
        assert "ada.package: the package of Ada for example, until" in capsys.readouterr().out
        assert main(["subscribe", *identity, "--plan", "basic", "--cancel", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["renewed_plans"] == []
        password.write_text("wrong")
        assert main(["subscribe", *identity]) == 2
        assert "name and password do not belong together" in capsys.readouterr().err
        office.send_signal(signal.SIGINT)
        assert office.wait() == 130
    assert main(["subscribe", found[0], *ca]) == 3
    assert "no box office answers" in capsys.readouterr().err
    subscription = Subscription(load_market(market), "ada.package", lambda: made["secret"])
    assert subscription.buyer == "Ada"
    assert not subscription.is_replaced
    desk("sell", "Ada", "basic", "--out", "ada.package")
    assert subscription.is_replaced
