"""Identities and the roster as files: made in one command, renewed when the market grows, refused in one sentence."""

from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from time import time_ns

import pytest
from tests.runtime.market.markets import changed

from isocast.runtime.market import key_files
from isocast.runtime.market.file import market_from_mapping
from isocast.runtime.market.key_files import check_keys, init_keys, key_names, load_keys, needed_by
from isocast.runtime.market.model import Market, SecuritySettings
from isocast.runtime.market.roster_files import REVOKE, ROOT, ROSTER, load_identity, load_roster
from isocast.runtime.market.roster_making import VALID_NS, signers
from isocast.runtime.market.secret_files import read_secret, replace_file
from isocast.security.identities import Identity
from isocast.security.roster import Roster, RosterRole, read_unsigned, sign_roster, unsigned
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import BOX_OFFICE, OPERATOR, source_id

GROWN: dict[str, object] = {"nodes.d": {"role": "primary-receiver"}, "nodes.pit": {"role": "primary-source"}}


def market_in(directory: Path, changes: dict[str, object] | None = None) -> Market:
    found = market_from_mapping(changed(changes or {}), str(directory / "market.toml")).market
    assert found is not None
    return found


@pytest.fixture
def keyed(tmp_path: Path) -> Market:
    market = market_in(tmp_path)
    init_keys(market)
    return market


def refusal(market: Market, node: str = "a") -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_keys(market, market.node(node))
    return caught.value.rule


def root_of(market: Market) -> Identity:
    return Identity(read_secret(market.keys_directory / ROOT))


def put(market: Market, roster: Roster) -> None:
    replace_file(market.keys_directory / ROSTER, sign_roster(roster, root_of(market)))


# ---- made


def test_the_first_roster_lists_everybody_who_signs(keyed: Market) -> None:
    roster = load_roster(keyed)
    assert (roster.name, roster.serial, roster.root) == (keyed.name, 1, root_of(keyed).public)
    assert roster.revoke_key == Identity(read_secret(keyed.keys_directory / REVOKE)).public
    assert [member.name for member in roster.members] == [
        *("a", "b", "c", "a2", "x", "y", "operator", "archive", "box-office", "floor", "broker"),
    ]
    for member in roster.members:
        assert member.public == load_identity(keyed, member.name).public
        assert member.exchange == load_identity(keyed, member.name).exchange
        assert member.not_after_ns - member.not_before_ns == VALID_NS
        assert member.covers(time_ns())
    floor = roster.by_name("floor")
    assert floor is not None
    assert (floor.node, floor.role) == (source_id(1, 0), RosterRole.PRIMARY_SOURCE)
    assert [roster.member(node) is not None for node in (OPERATOR, BOX_OFFICE)] == [True, True]
    assert roster.by_name("bank") is None, "customers are the box office's"


def test_a_node_holds_its_own_identity_and_the_roster(keyed: Market) -> None:
    held = load_keys(keyed, keyed.node("a"))
    assert held.identity is not None
    assert held.roster is not None
    assert held.roster.public_of(keyed.node("a").node) == held.identity.public
    bank = load_keys(keyed, keyed.node("bank"))
    assert (bank.identity, bank.roster) == (None, held.roster)


def test_a_second_run_changes_nothing(keyed: Market) -> None:
    before = {path: path.read_bytes() for path in keyed.keys_directory.rglob("*.*")}
    assert not [file for file in init_keys(keyed) if file.made]
    assert {path: path.read_bytes() for path in keyed.keys_directory.rglob("*.*")} == before


def test_new_nodes_get_identities_and_the_roster_its_next_serial(keyed: Market, tmp_path: Path) -> None:
    before = load_roster(keyed)
    grown = market_in(tmp_path, GROWN)
    made = [file.name for file in init_keys(grown) if file.made]
    assert made == ["source-pit.key", "identity-d.key", "identity-pit.key", ROSTER]
    after = load_roster(grown)
    assert after.follows(before)
    assert after.serial == 2
    assert {member.name for member in after.members} - {member.name for member in before.members} == {"d", "pit"}
    assert set(before.members) < {replace(member, sealed_core=b"") for member in after.members}
    load_keys(grown, grown.node("d"))


def test_keys_of_version_0_1_are_refused_and_then_completed(keyed: Market) -> None:
    old = [name for name in key_names(keyed) if name.startswith(("core", "edge", "source-"))]
    for path in keyed.keys_directory.iterdir():
        if path.is_dir():
            rmtree(path)
        elif path.name not in old:
            path.unlink()
    before = {name: (keyed.keys_directory / name).read_bytes() for name in old}
    rule = "is missing: isocast keys init adds it to keys of version 0.1; or copy it from where it was signed"
    assert refusal(keyed) == rule
    assert {file.name: file.fault for file in check_keys(keyed)}[ROSTER] == rule
    init_keys(keyed)
    load_keys(keyed, keyed.node("a"))
    assert {name: (keyed.keys_directory / name).read_bytes() for name in old} == before


def test_without_signatures_nobody_needs_them(tmp_path: Path) -> None:
    market = replace(market_in(tmp_path), security=SecuritySettings(signatures=False))
    files = init_keys(market)
    assert [file.name for file in files] == ["core.key", "edge.key", "source-floor.key", "source-broker.key"]
    held = load_keys(market, market.node("a"))
    assert (held.identity, held.roster) == (None, None)
    assert "roster.bin" not in needed_by(market, market.node("a"))


def test_a_node_that_takes_the_operators_name_is_told(tmp_path: Path) -> None:
    market = market_in(tmp_path, {"nodes.operator": {"role": "primary-receiver"}})
    with pytest.raises(ConfigurationError, match=r"nodes\.operator: operator is the name of somebody who signs"):
        signers(market)


# ---- an offline root


def test_an_offline_root_is_missed_only_when_the_roster_must_change(keyed: Market, tmp_path: Path) -> None:
    (keyed.keys_directory / ROOT).unlink()
    files = {file.name: file for file in init_keys(keyed)}
    assert (files[ROOT].made, files[ROOT].note) == (False, "not here")
    load_keys(keyed, keyed.node("a"))
    checked = {file.name: file for file in check_keys(keyed)}
    assert (checked[ROOT].fault, checked[ROOT].note) == ("", "not here: the operator has it")
    with pytest.raises(ConfigurationError) as caught:
        init_keys(market_in(tmp_path, GROWN))
    assert caught.value.rule == (
        "is not here, and the roster has to change: bring it for this command, or use --unsigned FILE"
    )


def test_identities_of_other_machines_are_not_made_again(keyed: Market) -> None:
    (keyed.keys_directory / "identity-b.key").unlink()
    files = {file.name: file for file in init_keys(keyed)}
    assert (files["identity-b.key"].made, files["identity-b.key"].note) == (False, "not here")
    assert not (keyed.keys_directory / "identity-b.key").exists()


# ---- refused, one sentence each


def test_a_roster_of_another_market(keyed: Market) -> None:
    rule = f'a roster of the market "{keyed.name}", not of "elsewhere": take the right one'
    assert refusal(replace(keyed, name="elsewhere")) == rule


def test_a_roster_that_was_changed_or_is_not_signed(keyed: Market) -> None:
    path = keyed.keys_directory / ROSTER
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes((raw[-1] ^ 1,)))
    assert refusal(keyed).startswith("roster 1 has a wrong signature: it was changed")
    path.write_bytes(unsigned(read_unsigned(raw)))
    assert refusal(keyed).startswith("roster 1 is not signed: isocast keys sign signs it")
    path.write_bytes(raw[:100])
    assert refusal(keyed).startswith("this is no roster: it is cut")
    path.write_bytes(raw)
    path.chmod(0o666)
    assert refusal(keyed).startswith("0666 lets others change it: chmod 644")


def test_an_identity_that_is_not_the_listed_one(keyed: Market) -> None:
    path = keyed.keys_directory / "identity-a.key"
    path.write_text("ab" * 32, encoding="ascii")
    rule = refusal(keyed)
    assert rule.startswith("is not the key that roster 1 lists for a: copy the newest roster.bin here")
    assert "ab" * 8 not in rule
    assert {file.name: file.fault for file in check_keys(keyed)}["identity-a.key"] == rule


def test_an_identity_that_is_unknown(keyed: Market) -> None:
    roster = load_roster(keyed)
    put(keyed, replace(roster, members=roster.members[1:]))
    assert refusal(keyed) == f"roster 1 does not list a as it is in {keyed.file}: isocast keys init adds it"


def test_a_revoked_identity(keyed: Market) -> None:
    roster = load_roster(keyed)
    put(keyed, replace(roster, revoked=(roster.members[0].public,)))
    assert refusal(keyed) == "the key of a was revoked: isocast keys rotate a makes another"
    load_keys(keyed, keyed.node("b"))


@pytest.mark.parametrize(
    "day, one, everybody",
    [
        (
            -1,
            "the key of a does not count yet: this machine's clock is behind, set it",
            "roster 1 does not count yet: this machine's clock is behind, set it",
        ),
        (
            731,
            "the key of a has expired: isocast keys roster --extend a prolongs it",
            "all keys of roster 1 have expired: isocast keys roster --extend prolongs them",
        ),
    ],
)
def test_a_clock_outside_the_keys_time(
    day: int, one: str, everybody: str, keyed: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time_ns() + day * 86_400 * 10**9
    monkeypatch.setattr(key_files, "time_ns", lambda: now)
    assert refusal(keyed) == everybody
    roster = load_roster(keyed)
    others = [replace(member, not_before_ns=0, not_after_ns=2 * now) for member in roster.members[1:]]
    put(keyed, replace(roster, members=(roster.members[0], *others)))
    assert refusal(keyed) == one
    load_keys(keyed, keyed.node("b"))
