"""Key files: made once, for their owner alone, shown by nobody."""

import os
import pickle
import stat
from pathlib import Path

import pytest
from tests.runtime.market.markets import changed

from isocast.runtime.market import secret_files
from isocast.runtime.market.file import market_from_mapping
from isocast.runtime.market.key_files import (
    CORE,
    EDGE,
    KeyFile,
    check_keys,
    init_keys,
    key_names,
    load_keys,
    load_source_key,
    needed_by,
)
from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import REVOKE, ROOT, ROSTER
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import Label, other_id, server_id, source_id

FLOOR, BROKER = "source-floor.key", "source-broker.key"
SHARED = [CORE, EDGE, FLOOR, BROKER]
IDENTITIES = [
    *(f"identity-{name}.key" for name in ("a", "b", "c", "a2", "x", "y", "operator", "archive")),
    *("identity-box-office.key", "identity-floor.key", "identity-broker.key", ROOT, REVOKE),
]
SECRETS = [*SHARED, *IDENTITIES]


@pytest.fixture
def market(tmp_path: Path) -> Market:
    found = market_from_mapping(changed({}), str(tmp_path / "market.toml")).market
    assert found is not None
    return found


@pytest.fixture
def keyed(market: Market) -> Market:
    init_keys(market)
    return market


def secret_of(market: Market, name: str) -> str:
    return (market.keys_directory / name).read_text(encoding="ascii").splitlines()[1]


def files_in(market: Market) -> list[str]:
    return sorted(path.name for path in market.keys_directory.iterdir() if path.is_file())


def refused(market: Market, node: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_keys(market, market.node(node))
    return caught.value


# ---- making


def test_directory_and_files_are_their_owners_alone_whatever_the_umask(market: Market) -> None:
    before = os.umask(0)
    try:
        files = init_keys(market)
    finally:
        os.umask(before)
    assert [file.name for file in files] == [*SECRETS, ROSTER]
    assert all(file.made for file in files)
    assert stat.S_IMODE(market.keys_directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((market.keys_directory / ROSTER).stat().st_mode) == 0o644
    for name in SECRETS:
        path = market.keys_directory / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        comment, digits = path.read_text(encoding="ascii").splitlines()
        assert comment.startswith(f"# {name} of the isocast market market")
        assert len(bytes.fromhex(digits)) == 32
    assert files_in(market) == sorted(key_names(market)), "no drafts left"


def test_every_key_is_another(keyed: Market) -> None:
    assert len({secret_of(keyed, name) for name in SECRETS}) == len(SECRETS)


def test_a_key_that_exists_is_never_touched(keyed: Market) -> None:
    before = {name: (keyed.keys_directory / name).read_bytes() for name in key_names(keyed)}
    (keyed.keys_directory / EDGE).unlink()
    files = init_keys(keyed)
    assert [file.name for file in files if file.made] == [EDGE]
    for name in (CORE, FLOOR, BROKER):
        assert (keyed.keys_directory / name).read_bytes() == before[name]
    assert (keyed.keys_directory / EDGE).read_bytes() != before[EDGE]


def test_a_key_that_appears_meanwhile_is_not_overwritten(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(count: int) -> bytes:
        (market.keys_directory / CORE).write_bytes(b"another's")
        return bytes(count)

    monkeypatch.setattr(secret_files, "token_bytes", meanwhile)
    with pytest.raises(ConfigurationError, match="File exists"):
        init_keys(market)
    assert (market.keys_directory / CORE).read_bytes() == b"another's"
    assert files_in(market) == [CORE]


def test_a_directory_that_is_open_to_others_is_refused(market: Market) -> None:
    market.keys_directory.mkdir()
    market.keys_directory.chmod(0o750)
    with pytest.raises(ConfigurationError, match="mode 0750 lets others in: chmod 700"):
        init_keys(market)
    assert not files_in(market)


def test_a_directory_that_cannot_be_made(market: Market) -> None:
    market.keys_directory.write_text("a file", encoding="ascii")
    with pytest.raises(ConfigurationError, match="keys: cannot be written: File exists"):
        init_keys(market)


# ---- who holds what


@pytest.mark.parametrize(
    "node, files",
    [
        ("a", (CORE, EDGE, FLOOR, "identity-a.key", ROSTER)),
        ("a2", (CORE, EDGE, FLOOR, "identity-a2.key", ROSTER)),
        ("floor", (CORE, FLOOR, BROKER, "identity-floor.key", ROSTER)),
        ("broker", (BROKER, "identity-broker.key", ROSTER)),
        ("x", (CORE, "identity-x.key", ROSTER)),
        ("archive", (EDGE, "identity-archive.key", ROSTER)),
        ("bank", (EDGE, ROSTER)),
    ],
)
def test_a_node_needs_its_own_files_and_no_others(node: str, files: tuple[str, ...], keyed: Market) -> None:
    assert needed_by(keyed, keyed.node(node)) == files
    for name in set(key_names(keyed)) - set(files):
        (keyed.keys_directory / name).unlink()
    load_keys(keyed, keyed.node(node))
    assert [file.name for file in check_keys(keyed, keyed.node(node)) if not file.fault] == list(files)


def test_receiver_source_server_and_customer_understand_each_other(keyed: Market) -> None:
    held = {name: load_keys(keyed, keyed.node(name)) for name in keyed.by_name}
    receiver, floor, server, bank = (held[name].core_ring() for name in ("a", "floor", "x", "bank"))
    sender = source_id(1, 5)
    assert receiver[sender] == floor[sender]
    assert receiver[1] == floor[1] == server[1]
    assert receiver[server_id(2)] == floor[server_id(2)]
    assert sender not in server, "whom a server has no business with"
    assert 1 not in bank
    edge = held["a"].edge_ring()
    assert edge[other_id(2)] == held["bank"].edge_ring()[other_id(2)] != receiver.get(other_id(2))


def test_a_floor_seals_and_a_receiver_opens(keyed: Market) -> None:
    label = Label(source_id(1, 1), 1)
    sealed = load_keys(keyed, keyed.node("floor")).sealer(1).seal(0, label, b"payload")
    assert load_source_key(keyed, keyed.node("floor")) == load_keys(keyed, keyed.node("b")).sources[1]
    assert load_keys(keyed, keyed.node("b")).opener().open(0, label, sealed).payload == b"payload"


# ---- refusing


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_a_key_that_others_can_reach_is_not_loaded(mode: int, keyed: Market) -> None:
    path = keyed.keys_directory / CORE
    path.chmod(mode)
    error = refused(keyed, "x")
    assert (error.file, error.key) == (str(path), "mode")
    assert error.rule == f"{mode:04o} lets others read it: chmod 600 {path}, or a new key"
    assert [file.fault for file in check_keys(keyed, keyed.node("x"))] == [error.rule, "", ""]


def test_a_directory_into_which_others_write_is_not_trusted(keyed: Market) -> None:
    keyed.keys_directory.chmod(0o770)
    assert refused(keyed, "x").rule.startswith("the directory's mode 0770 lets others in")
    assert all(file.fault for file in check_keys(keyed))


def test_a_missing_key_says_who_makes_it(keyed: Market) -> None:
    (keyed.keys_directory / FLOOR).unlink()
    error = refused(keyed, "a")
    assert error.file.endswith(FLOOR)
    assert error.rule == "is missing: isocast keys init makes it, or copy it from where it was made"


def test_without_a_directory_there_are_no_keys(market: Market) -> None:
    assert refused(market, "a").rule.startswith("is missing: isocast keys init makes it")
    assert all("is missing" in file.fault for file in check_keys(market))


@pytest.mark.parametrize(
    "content",
    ["", "# only a comment\n", "ab" * 31, "ab" * 33, "zz" * 32, "ab" * 32 + "\n" + "cd" * 32, "\0" * 64, "é" * 32],
)
def test_a_key_of_another_form_is_refused_and_not_shown(content: str, keyed: Market) -> None:
    path = keyed.keys_directory / CORE
    path.write_text(content, encoding="utf-8")
    error = refused(keyed, "x")
    assert error.rule == "must be one line of 64 hexadecimal digits, and comments"
    assert not content or content.strip() not in str(error)


def test_a_directory_or_a_pipe_is_no_key(keyed: Market) -> None:
    path = keyed.keys_directory / CORE
    path.unlink()
    os.mkfifo(path, 0o600)
    assert refused(keyed, "x").rule == "is not a file"


def test_another_users_key_is_refused(keyed: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() == 0:  # Whose files anybody may be given.
        os.chown(keyed.keys_directory / CORE, 4321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert refused(keyed, "x").rule.startswith("is another user")


def test_one_key_in_two_files_is_refused(keyed: Market) -> None:
    (keyed.keys_directory / FLOOR).write_bytes((keyed.keys_directory / CORE).read_bytes())
    assert refused(keyed, "a").rule == f"holds the same key as {CORE}: remove it and run isocast keys init"
    faults = {file.name: file.fault for file in check_keys(keyed) if file.fault}
    assert faults == {FLOOR: f"holds the same key as {CORE}: remove it and run isocast keys init"}


# ---- nothing shows


def test_checking_shows_fingerprints_that_follow_the_key(keyed: Market) -> None:
    files = check_keys(keyed)
    assert not [file for file in files if file.fault]
    assert len({file.fingerprint for file in files}) == len(SECRETS) + 1
    assert files == check_keys(keyed)
    assert files[0].nodes == ("a", "b", "c", "a2", "floor", "x", "y")


def test_no_text_holds_a_key(keyed: Market) -> None:
    held = load_keys(keyed, keyed.node("a"))
    texts = [repr(held), str(held), *map(repr, check_keys(keyed)), repr(KeyFile("x", Path("y")))]
    for name in SECRETS:
        secret = secret_of(keyed, name)
        assert not any(secret in text or repr(bytes.fromhex(secret))[2:-1] in text for text in texts)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(held)
