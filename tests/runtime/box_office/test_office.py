"""The box office on both databases: what is paid for can be fetched, and nothing else."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs
from tests.runtime.box_office.offices import (
    BASIC,
    HOUR,
    KEYS,
    LEAD,
    START,
    Clock,
    bought,
    close_all,
    office_at,
    opened,
    sqlite_in,
)
from tests.security.package_samples import CHEAP, DAY, MARKET, OFFICE, REGION

from isocast.runtime.box_office import office as office_module
from isocast.runtime.box_office.database import OfficeDatabase
from isocast.runtime.box_office.office import BoxOffice, OfficeKeys, OfficePlan
from isocast.runtime.box_office.payments import (
    TEST_ACCEPTED,
    TEST_DECLINED,
    Charge,
    TestPayments,
    check_instrument,
)
from isocast.runtime.net.sign_in import is_password
from isocast.security.packages import TEST_CARDS, card_secret, open_package, read_label
from isocast.security.subscriptions import service_key
from isocast.terms.errors import ConfigurationError, OfficeError, OfficeFault, PackageError


@pytest.fixture
def url(database_url: str) -> str:
    return database_url


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def office(url: str, tmp_path: Path, clock: Clock) -> Iterator[BoxOffice]:
    made = office_at(url, tmp_path, clock)
    yield made
    assert made.audit_fault() == ""


def fault_of(error: pytest.ExceptionInfo[OfficeError]) -> OfficeFault:
    return error.value.fault


# ---- buying


def test_what_is_paid_for_is_in_the_package_and_is_what_the_lines_are_sealed_with(office: BoxOffice) -> None:
    secret = bought(office)
    got = opened(office.package("Ada"), secret, START)
    assert got.buyer == "Ada"
    assert got.keys == tuple(service_key(REGION, service, 20_000, DAY) for service in ("base", "repair"))


def test_a_package_is_made_once_for_the_same_contents(office: BoxOffice) -> None:
    bought(office)
    assert office.package("Ada") == office.package("Ada")
    assert [entry.act for entry in office.audit()].count("package") == 1


def test_a_second_purchase_goes_on_where_the_first_ends(office: BoxOffice) -> None:
    bought(office, periods=2)
    order = office.buy("Ada", "basic", key="k2", periods=3)
    assert (order.first_period, order.periods, order.amount) == (20_002, 3, 3 * 1_250)
    assert [invoice.number for invoice in office.invoices("Ada")] == [2, 1]


def test_plans_that_overlap_share_their_keys(office: BoxOffice) -> None:
    office.set_plan(OfficePlan("stripes", "Two stripes", ("base", "stripe:3", "stripe:4"), 100, "EUR"))
    secret = bought(office)
    office.buy("Ada", "stripes", key="k2")
    keys = opened(office.package("Ada"), secret, START).keys
    assert [key.service for key in keys] == ["base", "repair", "stripe:3", "stripe:4"]


def test_one_key_buys_once(office: BoxOffice, tmp_path: Path) -> None:
    office.enrol("Ada")
    orders = [office.buy("Ada", "basic", key="k1", instrument=TEST_ACCEPTED) for _ in range(3)]
    assert len(set(orders)) == 1
    assert len(office.invoices()) == 1
    assert len((tmp_path / "charges.jsonl").read_text().splitlines()) == 1
    with pytest.raises(OfficeError, match="bought something else") as caught:
        office.buy("Ada", "basic", key="k1", periods=2)
    assert fault_of(caught) is OfficeFault.CONFLICT


def test_one_key_in_many_hands_at_once_is_one_invoice(url: str, tmp_path: Path, clock: Clock) -> None:
    """All of them wait for the provider at the same time, behind the order and before the invoice."""
    together = Barrier(4)

    class Slow(TestPayments):
        def charge(self, key: str, amount: int, currency: str, instrument: str) -> Charge:
            together.wait()
            return super().charge(key, amount, currency, instrument)

    office = office_at(url, tmp_path, clock, Slow(tmp_path / "charges.jsonl"))
    office.enrol("Ada")

    def buy(_: int) -> int:
        return office.buy("Ada", "basic", key="k1", instrument=TEST_ACCEPTED).id

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(buy, range(4)))) == 1
    assert len(office.invoices()) == len(office.orders()) == 1
    assert len((tmp_path / "charges.jsonl").read_text().splitlines()) == 1


def test_different_keys_at_once_buy_different_periods(office: BoxOffice) -> None:
    office.enrol("Ada")
    together = Barrier(4)

    def buy(number: int) -> int:
        together.wait()
        return office.buy("Ada", "basic", key=f"k{number}", instrument=TEST_ACCEPTED).first_period

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(buy, range(4))) == [20_000, 20_001, 20_002, 20_003]
    assert [invoice.number for invoice in office.invoices()] == [4, 3, 2, 1]


def test_what_was_declined_opens_nothing_and_frees_its_period(office: BoxOffice) -> None:
    office.enrol("Ada")
    for _ in range(2):
        with pytest.raises(OfficeError, match="payment was declined") as caught:
            office.buy("Ada", "basic", key="k1", instrument=TEST_DECLINED)
        assert fault_of(caught) is OfficeFault.DECLINED
    with pytest.raises(OfficeError, match="nothing is paid for now: buy a plan"):
        office.package("Ada")
    assert office.invoices() == []
    assert office.buy("Ada", "basic", key="k2", instrument=TEST_ACCEPTED).first_period == 20_000


@pytest.mark.parametrize(
    "asked, reason",
    [
        ({"periods": 0}, "1 to 366"),
        ({"periods": 367}, "1 to 366"),
        ({"plan": "gold"}, "no plan 'gold' on sale"),
        ({"key": ""}, "idempotency key"),
        ({"key": "a\nb"}, "idempotency key"),
        ({"instrument": ""}, "no means of payment yet"),
        ({"instrument": "a b"}, "provider's token"),
    ],
)
def test_what_cannot_be_bought_is_said_in_one_sentence(
    office: BoxOffice, asked: dict[str, object], reason: str
) -> None:
    office.enrol("Ada")
    whole: dict[str, object] = {"plan": "basic", "key": "k1", "instrument": TEST_ACCEPTED, **asked}
    with pytest.raises(OfficeError, match=reason):
        office.buy("Ada", **whole)  # type: ignore[arg-type]
    assert office.orders() == []


def test_a_plan_off_sale_is_not_sold_but_was_sold(office: BoxOffice) -> None:
    secret = bought(office)
    office.set_plan(BASIC._replace(on_sale=False, price=1, services=("history",)))
    assert office.plans(on_sale=True) == []
    with pytest.raises(OfficeError, match="no plan"):
        office.buy("Ada", "basic", key="k2")
    assert [key.service for key in opened(office.package("Ada"), secret, START).keys] == ["base", "repair"]


# ---- crashes between payment and package


class Dying:
    """A provider that takes the money, after which the office dies."""

    name = "test"

    def __init__(self, real: TestPayments, *, charges: bool) -> None:
        self._real = real
        self._charges = charges

    def charge(self, key: str, amount: int, currency: str, instrument: str) -> Charge:
        if self._charges:
            self._real.charge(key, amount, currency, instrument)
        raise KeyboardInterrupt

    def find(self, key: str) -> Charge | None:
        return self._real.find(key)


def test_whoever_paid_can_fetch_though_the_office_died_between(url: str, tmp_path: Path, clock: Clock) -> None:
    real = TestPayments(tmp_path / "charges.jsonl")
    dying = office_at(url, tmp_path, clock, Dying(real, charges=True))
    secret = dying.enrol("Ada").secret
    with pytest.raises(KeyboardInterrupt):
        dying.buy("Ada", "basic", key="k1", instrument=TEST_ACCEPTED, renews=True)
    office = office_at(url, tmp_path, clock, real)
    assert opened(office.package("Ada"), secret, START).keys
    assert len(office.invoices()) == 1
    assert office.standing("Ada") == ["basic"]
    assert office.buy("Ada", "basic", key="k1", instrument=TEST_ACCEPTED, renews=True).state == "paid"
    assert len((tmp_path / "charges.jsonl").read_text().splitlines()) == 1


def test_what_was_never_charged_is_void_after_a_while(url: str, tmp_path: Path, clock: Clock) -> None:
    real = TestPayments(tmp_path / "charges.jsonl")
    dying = office_at(url, tmp_path, clock, Dying(real, charges=False))
    dying.enrol("Ada")
    with pytest.raises(KeyboardInterrupt):
        dying.buy("Ada", "basic", key="k1", instrument=TEST_ACCEPTED)
    office = office_at(url, tmp_path, clock, real)
    assert office.settle() == []
    clock.now += HOUR
    assert [order.state for order in office.settle()] == ["void"]
    assert office.invoices() == []
    assert not (tmp_path / "charges.jsonl").exists()


def test_a_silent_provider_is_asked_again_with_the_same_key(url: str, tmp_path: Path, clock: Clock) -> None:
    class Silent(TestPayments):
        def charge(self, *_: object) -> Charge:
            raise ConnectionRefusedError

    silent = office_at(url, tmp_path, clock, Silent(tmp_path / "charges.jsonl"))
    silent.enrol("Ada")
    with pytest.raises(OfficeError, match="does not answer: try again with the same") as caught:
        silent.buy("Ada", "basic", key="k1", instrument=TEST_ACCEPTED)
    assert fault_of(caught) is OfficeFault.UNAVAILABLE
    office = office_at(url, tmp_path, clock)
    assert office.buy("Ada", "basic", key="k1", instrument=TEST_ACCEPTED).state == "paid"
    assert len(office.invoices()) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.runtime.box_office.offices import Clock, office_at
from isocast.runtime.box_office.payments import TEST_ACCEPTED, TestPayments

class Killed(TestPayments):
    def charge(self, *asked):
        super().charge(*asked)
        os.kill(os.getpid(), signal.SIGKILL)

folder = Path(sys.argv[2])
office = office_at(sys.argv[1], folder, Clock(), Killed(folder / "charges.jsonl"))
print(office.enrol("Ada").secret, flush=True)
office.buy("Ada", "basic", key="k1", instrument=TEST_ACCEPTED)
"""


def test_a_kill_between_payment_and_package_loses_neither(url: str, tmp_path: Path, clock: Clock) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", KILLED, url, str(tmp_path)]
    ended = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    assert ended.returncode == -9, ended.stderr
    office = office_at(url, tmp_path, clock)
    assert [order.state for order in office.orders()] == ["pending"]
    assert opened(office.package("Ada"), ended.stdout.strip(), START).keys
    assert len(office.invoices()) == 1


# ---- renewals


def test_who_renews_has_the_next_keys_before_the_period_ends(office: BoxOffice, clock: Clock) -> None:
    """A renewed one misses nothing: each package has the keys of every instant until the next is fetched."""
    secret = bought(office, renews=True)
    for _ in range(72):
        clock.now += HOUR
        office.renew_due()
        held = opened(office.package("Ada"), secret, clock.now).keys
        for instant in (clock.now, clock.now + HOUR):
            assert {key.service for key in held if key.begins <= instant < key.ends} == {"base", "repair"}
    assert len(office.invoices()) == 4


def test_keys_of_the_next_period_are_given_out_no_earlier_than_the_lead(office: BoxOffice, clock: Clock) -> None:
    secret = bought(office, periods=3)
    clock.now = 20_001 * DAY - LEAD - 1
    assert read_label(office.package("Ada")).ends == 20_001 * DAY
    clock.now += 1
    assert read_label(office.package("Ada")).ends == 20_002 * DAY
    assert {key.period for key in opened(office.package("Ada"), secret, clock.now).keys} == {20_000, 20_001}


def test_who_does_not_renew_gets_no_keys_after_the_end(office: BoxOffice, clock: Clock) -> None:
    secret = bought(office)
    clock.now = 20_001 * DAY - 1
    office.renew_due()
    assert opened(office.package("Ada"), secret, clock.now).label.ends == 20_001 * DAY
    clock.now += 1
    with pytest.raises(OfficeError, match="nothing is paid for now"):
        office.package("Ada")


def test_a_renewal_is_charged_once_however_often_it_is_due(office: BoxOffice, clock: Clock) -> None:
    bought(office, renews=True)
    clock.now = 20_001 * DAY - 2 * LEAD
    assert [renewal.state for renewal in office.renew_due()] == ["paid"]
    assert office.renew_due() == []
    assert len(office.invoices()) == 2


def test_a_declined_renewal_is_tried_again_until_it_is_paid(url: str, tmp_path: Path, clock: Clock) -> None:
    class Moody(TestPayments):
        accepts = True

        def charge(self, key: str, amount: int, currency: str, instrument: str) -> Charge:
            return super().charge(key, amount, currency, instrument if self.accepts else TEST_DECLINED)

    moody = Moody(tmp_path / "charges.jsonl")
    office = office_at(url, tmp_path, clock, moody)
    secret = bought(office, renews=True)
    moody.accepts = False
    clock.now = 20_001 * DAY - 2 * LEAD
    assert [renewal.state for renewal in office.renew_due()] == ["declined"]
    moody.accepts = True
    assert [renewal.state for renewal in office.renew_due()] == ["declined"]
    clock.now += HOUR
    assert [renewal.state for renewal in office.renew_due()] == ["paid"]
    clock.now = 20_001 * DAY
    assert opened(office.package("Ada"), secret, clock.now).keys


def test_a_renewal_ends_when_the_subscriber_says_so(office: BoxOffice, clock: Clock) -> None:
    bought(office, renews=True)
    office.stand("Ada", "basic", renews=False)
    clock.now = 20_001 * DAY - 1
    assert office.renew_due() == []
    with pytest.raises(OfficeError, match="never bought"):
        office.stand("Ada", "gold", renews=True)


def test_past_keys_that_were_bought_are_kept_for_late_repairs(office: BoxOffice, clock: Clock) -> None:
    secret = bought(office, periods=20)
    clock.now = 20_015 * DAY
    periods = {key.period for key in opened(office.package("Ada"), secret, clock.now).keys}
    assert periods == set(range(20_008, 20_016))


# ---- revocation


def test_who_is_revoked_gets_no_next_package_and_is_not_charged(office: BoxOffice, clock: Clock) -> None:
    secret = bought(office, renews=True)
    held = office.package("Ada")
    office.revoke("Ada", "did not behave")
    clock.now = 20_001 * DAY - 1
    assert office.renew_due() == []
    for act in (lambda: office.package("Ada"), lambda: office.buy("Ada", "basic", key="k2")):
        with pytest.raises(OfficeError, match="was revoked: ask the operator") as caught:
            act()
        assert fault_of(caught) is OfficeFault.FORBIDDEN
    assert max(key.ends for key in opened(held, secret, clock.now).keys) == 20_001 * DAY
    office.revoke("Ada", undo=True)
    assert office.package("Ada")
    assert office.standing("Ada") == []


# ---- who opens what


def test_a_shared_package_opens_nothing_without_the_secret_and_names_its_buyer(office: BoxOffice) -> None:
    bought(office)
    other = bought(office, "Bob")
    raw = office.package("Ada")
    assert read_label(raw).buyer == "Ada"
    with pytest.raises(PackageError, match="does not open the package of Ada"):
        opened(raw, other, START)


def test_new_secrets_replace_the_old_ones(office: BoxOffice) -> None:
    old = bought(office)
    token, _ = office.log_in("Ada", office.reset("Ada").password)
    again = office.reset("Ada")
    assert again.secret not in (old, "")
    with pytest.raises(OfficeError, match="log in first"):
        office.whose(token)
    raw = office.package("Ada")
    assert opened(raw, again.secret, START).keys
    with pytest.raises(PackageError, match="does not open"):
        opened(raw, old, START)


def test_a_test_card_may_mask_a_package_for_demonstration(office: BoxOffice) -> None:
    enrolment = office.enrol("Ada", card=TEST_CARDS[1])
    assert enrolment.secret == ""
    office.buy("Ada", "basic", key="k1", instrument=TEST_ACCEPTED)
    raw = office.package("Ada")
    assert open_package(raw, card_secret(TEST_CARDS[1]), MARKET, OFFICE.public, START, least=CHEAP).keys
    with pytest.raises(PackageError, match="only test numbers"):
        office.enrol("Bob", card="4000123412341234")


# ---- logging in


def test_a_session_is_its_subscribers_until_it_ends(office: BoxOffice, clock: Clock) -> None:
    enrolment = office.enrol("Ada")
    token, ends = office.log_in("Ada", enrolment.password)
    who = office.whose(token)
    assert who is not None
    assert who.name == "Ada"
    clock.now = ends
    with pytest.raises(OfficeError, match="log in first"):
        office.whose(token)
    token, _ = office.log_in("Ada", enrolment.password)
    office.log_out(token)
    with pytest.raises(OfficeError, match="log in first"):
        office.whose(token)


def test_a_wrong_name_and_a_wrong_password_get_one_answer_and_one_effort(
    office: BoxOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.enrol("Ada")
    efforts: list[str] = []

    def counting(password: str, kept: str) -> bool:
        efforts.append(kept)
        return is_password(password, kept)

    monkeypatch.setattr(office_module, "is_password", counting)
    said = set()
    for name, password in (("Ada", "wrong"), ("Nobody", "wrong"), ("Ada", ""), ("Ada", "x" * 10_000), ("'; --", "\0")):
        with pytest.raises(OfficeError) as caught:
            office.log_in(name, password)
        assert fault_of(caught) is OfficeFault.UNAUTHORISED
        said.add(str(caught.value))
    assert len(said) == 1
    assert len(efforts) == 5


def test_an_operators_token_is_nobodys_account(office: BoxOffice) -> None:
    token, _ = office.operator_token(DAY)
    assert office.whose(token) is None


def test_the_oldest_session_ends_when_there_are_too_many(office: BoxOffice, clock: Clock) -> None:
    enrolment = office.enrol("Ada")
    tokens = []
    for _ in range(17):
        clock.now += 1
        tokens.append(office.log_in("Ada", enrolment.password)[0])
    with pytest.raises(OfficeError, match="log in first"):
        office.whose(tokens[0])
    assert all(office.whose(token) for token in tokens[1:])


# ---- what is kept


INJECTIONS = [
    "'; DROP TABLE orders; --",
    '" OR 1=1 --',
    "Robert'); DELETE FROM audit;--",
    "%",
    "\\'",
    "$1",
    ":name",
    "{0}",
]


@pytest.mark.parametrize("name", INJECTIONS)
def test_sql_in_a_name_is_a_name(office: BoxOffice, name: str) -> None:
    bought(office)
    with pytest.raises(OfficeError, match="no subscriber"):
        office.package(name)
    secret = bought(office, name)
    assert opened(office.package(name), secret, START).buyer == name
    office.set_plan(OfficePlan(name, name, ("base",), 1, "EUR"))
    office.buy(name, name, key=name)
    office.revoke(name, name)
    assert {who.name for who in office.subscribers()} == {"Ada", name}
    assert len(office.orders()) == 3


@pytest.mark.parametrize(
    "number", ["4111111111111111", "4111 1111 1111 1111", "test:4111-1111-1111-1111", "3782:82246310005"]
)
def test_no_card_number_is_stored_or_logged_or_repeated(url: str, tmp_path: Path, clock: Clock, number: str) -> None:
    office = office_at(url, tmp_path, clock)
    digits = "".join(filter(str.isdigit, number))
    with capture_logs() as logs:
        office.enrol("Ada", card="4111111111111111")
        with pytest.raises(OfficeError, match="looks like a card number, which this office never takes") as caught:
            office.buy("Ada", "basic", key="k1", instrument=number)
        office.buy("Ada", "basic", key="k2", instrument=TEST_ACCEPTED)
        office.package("Ada")
    everything = dump(office) + str(logs) + str(caught.value) + (tmp_path / "charges.jsonl").read_text()
    assert digits not in re.sub("[ :_-]", "", everything)
    assert number not in everything
    for file in tmp_path.iterdir():
        assert digits.encode() not in file.read_bytes()


def dump(office: BoxOffice) -> str:
    """Everything that is in the database, as text."""
    from isocast.runtime.box_office.database import SETTINGS  # noqa: PLC0415

    with office._database.reading() as connection:  # noqa: SLF001
        rows = [connection.execute(table.select()).all() for table in SETTINGS.metadata.sorted_tables]
    return "\n".join(
        str(tuple(value.hex() if isinstance(value, bytes) else value for value in row)) for part in rows for row in part
    )


def test_the_database_holds_no_secret_in_the_clear(office: BoxOffice) -> None:
    enrolment = office.enrol("Ada")
    token, _ = office.log_in("Ada", enrolment.password)
    office.buy("Ada", "basic", key="k1", instrument=TEST_ACCEPTED)
    got = opened(office.package("Ada"), enrolment.secret, START)
    everything = dump(office)
    secrets = [enrolment.password, enrolment.secret, token, *(key.key.hex() for key in got.keys)]
    assert [secret for secret in secrets if secret in everything] == []
    assert enrolment.password not in repr(enrolment)
    assert enrolment.secret not in repr(enrolment)


# ---- the audit log


def test_every_change_has_its_entry(office: BoxOffice) -> None:
    bought(office, renews=True)
    office.package("Ada")
    office.stand("Ada", "basic", renews=False)
    office.reset("Ada")
    office.revoke("Ada", "late")
    office.revoke("Ada", undo=True)
    acts = ["plan", "enrol", "order", "paid", "package", "renewal", "reset", "revoke", "restore"]
    assert [entry.act for entry in office.audit()] == acts
    assert [entry.number for entry in office.audit(after=7)] == [8, 9]
    assert json.loads(office.audit()[7].detail) == {"reason": "late"}


@pytest.mark.parametrize("verb", ["UPDATE audit SET actor = 'nobody'", "DELETE FROM audit"])
def test_the_database_itself_refuses_to_change_the_log(office: BoxOffice, verb: str) -> None:
    with pytest.raises(OfficeError, match="refuses"), office._database.writing() as connection:  # noqa: SLF001
        connection.execute(text(verb))


@pytest.mark.parametrize(
    "change, fault",
    [
        ("UPDATE audit SET actor = 'nobody' WHERE number = 2", "entry 2 is not as it was written"),
        ("UPDATE audit SET detail = '{}' WHERE number = 3", "entry 3 is not as it was written"),
        ("DELETE FROM audit WHERE number = 2", "entry 2 is missing"),
        ("DELETE FROM audit WHERE number = 4", "entries after 3 are missing"),
        ("DELETE FROM audit", "entries after 0 are missing"),
    ],
)
def test_whoever_gets_past_that_is_found_out(tmp_path: Path, clock: Clock, change: str, fault: str) -> None:
    office = office_at(sqlite_in(tmp_path), tmp_path, clock)
    bought(office)
    assert office.audit_fault() == ""
    with sqlite3.connect(tmp_path / "office.db") as raw:
        for verb in ("UPDATE", "DELETE"):
            raw.execute(f"DROP TRIGGER audit_is_kept_{verb}")
        raw.execute(change)
    raw.close()
    assert office.audit_fault() == fault


# ---- databases


def test_the_file_is_its_owners_alone(tmp_path: Path, clock: Clock) -> None:
    office = office_at(sqlite_in(tmp_path), tmp_path, clock)
    bought(office)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes.keys() >= {"office.db", "office.db-wal", "charges.jsonl"}
    assert set(modes.values()) == {0o600}


def test_an_office_of_another_market_is_left_alone(url: str, tmp_path: Path, clock: Clock) -> None:
    office_at(url, tmp_path, clock)
    other = OfficeKeys("other", bytes(32), KEYS.identity, KEYS.region, KEYS.vault)
    database = OfficeDatabase(url)
    assert not BoxOffice.create(database, other, DAY, LEAD)
    with pytest.raises(ConfigurationError, match="is the box office of another market, demo"):
        BoxOffice(database, other, TestPayments(tmp_path / "x"), passwords=CHEAP)
    database.close()


def test_a_database_without_an_office_says_how_to_make_one(url: str) -> None:
    database = OfficeDatabase(url)
    with pytest.raises(ConfigurationError, match="isocast box-office init makes one"):
        database.settings()
    database.close()


@pytest.mark.parametrize("place", ["", "mysql://x/y", "nonsense"])
def test_another_place_is_no_database(place: str) -> None:
    with pytest.raises(ConfigurationError, match="must be sqlite:///FILE or postgresql://"):
        OfficeDatabase(place)


def test_a_password_of_the_database_is_not_shown() -> None:
    database = OfficeDatabase("postgresql://office:hunter2@127.0.0.1:1/none")
    with pytest.raises(
        OfficeError, match=r"refuses: connection failed: .* port 1 failed: Connection refused"
    ) as caught:
        database.settings()
    assert "hunter2" not in str(caught.value) + database.place
    database.close()


@pytest.mark.parametrize(
    "plan, reason",
    [
        (BASIC._replace(name=""), "name of a plan"),
        (BASIC._replace(services=()), "services"),
        (BASIC._replace(services=("gold",)), "no service"),
        (BASIC._replace(price=-1), "minor units"),
        (BASIC._replace(currency="eur"), "three capital letters"),
        (BASIC._replace(title="a\nb"), "title"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(tmp_path: Path, clock: Clock, plan: OfficePlan, reason: str) -> None:
    office = office_at(sqlite_in(tmp_path), tmp_path, clock)
    with pytest.raises(OfficeError, match=reason):
        office.set_plan(plan)


def test_instruments_are_tokens() -> None:
    assert check_instrument("tok_1Abc-9") == "tok_1Abc-9"
    for bad in ("", " ", "a" * 200, "é"):
        with pytest.raises(OfficeError, match="provider's token"):
            check_instrument(bad)
