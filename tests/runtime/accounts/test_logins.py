"""Who may come in: delays, sessions, tokens."""

from __future__ import annotations

from isocast.orders.desk import Scope
from isocast.runtime.accounts.logins import LoginDelays, Sessions

SECOND = 1_000_000_000


def test_a_delay_grows_by_name_and_by_address_and_is_forgotten() -> None:
    delays = LoginDelays()

    def failing(name: str, address: str, now: int) -> float | None:
        wait = delays.begin(name, address, now)
        delays.end(name, address, now, failed=True)
        return wait

    assert [failing("ada", f"10.0.0.{n}", 0) for n in range(6)] == [0, 0, 0, 0.5, 1.0, 2.0]
    assert [failing(f"name {n}", "10.0.0.9", 0) for n in range(5)] == [0, 0, 0, 0.5, 1.0]
    assert failing("ada", "10.0.0.77", int(LoginDelays.FORGOTTEN_S * SECOND)) == 0


def test_whoever_guesses_on_loopback_makes_nobody_else_wait() -> None:
    """There a proxy of the operator's brings everybody."""
    delays = LoginDelays()
    for number in range(9):
        delays.begin(f"name {number % 2}", "127.0.0.1", 0)
        delays.end(f"name {number % 2}", "127.0.0.1", 0, failed=True)
    assert delays.begin("ada", "127.0.0.1", 0) == 0
    assert delays.begin("name 0", "127.0.0.1", 0) == 2.0


def test_a_success_forgives() -> None:
    delays = LoginDelays()
    for _ in range(5):
        delays.begin("ada", "here", 0)
        delays.end("ada", "here", 0, failed=True)
    assert delays.begin("ada", "here", 0) == 2.0
    delays.end("ada", "here", 0, failed=False)
    assert delays.begin("ada", "here", 0) == 0


def test_tries_at_the_same_time_count_as_failures_and_are_few_from_one_address() -> None:
    delays = LoginDelays()
    waits = [delays.begin("ada", "10.0.0.1", 0) for _ in range(6)]
    assert waits == [0, 0, 0, 0.5, None, None]
    assert delays.begin("bob", "10.0.0.1", 0) is None
    delays.end("ada", "10.0.0.1", 0, failed=True)
    assert delays.begin("ada", "10.0.0.1", 0) is not None


def test_whoever_guesses_elsewhere_keeps_nobody_out() -> None:
    """Late, and let in: however many tries of the same name wait."""
    delays = LoginDelays()
    for number in range(40):
        delays.begin("ada", f"10.0.0.{number % 10}", 0)
    assert delays.begin("ada", "10.0.1.1", 0) == LoginDelays.LONGEST_S
    for _ in range(9):
        delays.begin("ada", "127.0.0.1", 0)
    assert delays.begin("bob", "127.0.0.1", 0) == 0


def test_a_session_ends_after_its_time() -> None:
    sessions = Sessions(10.0)
    login = sessions.begin(7, "ada", 0)
    assert login.scopes == frozenset(Scope)
    assert sessions.find(login.session, 10 * SECOND - 1) == login
    assert sessions.find(login.session, 10 * SECOND) is None
    assert sessions.find("another", 0) is None
    assert sessions.begin(7, "ada", 0).session != login.session
