"""`isocast keys`: make a market's key files, say who is who, and take keys away. No command ever shows a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from isocast.cli.options import Config, ConfigAtRest, Count, Flag
from isocast.cli.render import line, note, show_json, show_table
from isocast.terms.errors import ConfigurationError, RosterError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.market.key_files import KeyFile
    from isocast.runtime.market.model import Market, NodePlan
    from isocast.runtime.market.roster_making import IdentityRequest, RosterWish
    from isocast.security.roster import RosterBook, RosterMember

__all__ = ["app"]

app = App(
    name="keys",
    help="Make and check the key files of a market; rosters, rotation and revocation.",
    help_epilogue="Start with:\n\n    isocast keys init --config market.toml\n",
)

_WRONG = 1
_NAMES_SHOWN = 6
_REQUEST_BYTES_MAX = 1_024
_DAY_NS = 86_400 * 10**9
_EVERYBODY = "all"
_PIN_SHOWN = 16
"""Of a certificate's hash, as isocast certs show has it."""


@app.command(
    help_epilogue="""Examples:

    isocast keys init --config market.toml

Run it once, on one machine, and copy to each other machine the files that its nodes need: `isocast keys check` tells
which. Then take root.key offline: no node needs it.
"""
)
def init(*, config: ConfigAtRest = None, json: Flag = False) -> int:
    """Make the keys directory (0700) and every key file that is missing (0600). A key that exists is never touched.

    The roster says whose identity is whose. Where it does not list the nodes of the file, root.key signs the next one.

    Parameters
    ----------
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.market.key_files import init_keys

    market = open_market(config, running=False)
    files = init_keys(market)
    made = sum(file.made for file in files)
    if json:
        show_json(_as_json(market, files))
        return 0
    rows = [(f.name, "made" if f.made else f.note or "kept: it exists", _shortened(f.nodes)) for f in files]
    show_table(f"Keys in {market.keys_directory}", ("file", "", "needed by"), rows)
    line(f"{made} made, {len(files) - made} kept.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast keys check --config market.toml

    isocast keys check --config market.toml --node london

Equal fingerprints on two machines mean equal keys. Exit code: 0 fine, 1 something is wrong, 2 bad input.
"""
)
def check(*, config: ConfigAtRest = None, node: str | None = None, json: Flag = False) -> int:
    """Check the key files: there, whole, and readable by their owner alone.

    Parameters
    ----------
    node
        Only the files that this node needs.
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.market.key_files import check_keys

    market = open_market(config, running=False)
    files = check_keys(market, None if node is None else _plan(market, node))
    faults = sum(bool(file.fault) for file in files)
    if json:
        show_json(_as_json(market, files))
    else:
        rows = [(f.name, f.fingerprint or "–", f.fault or f.note or "fine", _shortened(f.nodes)) for f in files]
        show_table(f"Keys in {market.keys_directory}", ("file", "fingerprint", "", "needed by"), rows)
        line(f"{counted(len(files), 'file')}, {faults or 'none'} with a fault.")
    return _WRONG if faults else 0


@app.command(
    help_epilogue="""Examples:

    isocast keys show --config market.toml

    isocast keys show --config market.toml --json
"""
)
def show(*, config: ConfigAtRest = None, json: Flag = False) -> int:
    """Show the roster: who is who, by which key, until when, and what was revoked.

    Parameters
    ----------
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.market.roster_files import load_book
    from isocast.security.identities import fingerprint_of

    market = _market(config)
    book = load_book(market)
    roster, now = book.newest, time_ns()
    rows = [_listing(book, member, now) for member in roster.members]
    if json:
        show_json(
            {
                "market": roster.name,
                "serial": roster.serial,
                "digest": roster.digest.hex(),
                "root": fingerprint_of(roster.root),
                "revoke_key": fingerprint_of(roster.revoke_key),
                "brings_core_key": bool(roster.ephemeral),
                "authorities": [pin.hex() for pin in roster.authorities],
                "revoked": [fingerprint_of(public) for public in roster.revoked],
                "members": [dict(zip(_MEMBER_FIELDS, row, strict=True)) for row in rows],
            }
        )
        return 0
    head = f"{roster.name}: roster {roster.serial}, root {fingerprint_of(roster.root)}"
    show_table(f"{head}, revoke key {fingerprint_of(roster.revoke_key)}", _MEMBER_FIELDS, rows)
    line(f"{counted(len(rows), 'identity', 'identities')}, {counted(len(roster.revoked), 'key')} revoked for good.")
    pins = " ".join(pin.hex()[:_PIN_SHOWN] for pin in roster.authorities) or "none"
    line(f"Certificates of the authority that count: {pins}." if roster.pins else "It pins no certificate.")
    return 0


_MEMBER_FIELDS = ("name", "role", "stripes", "fingerprint", "from", "until", "state", "certificate")


def _listing(book: RosterBook, member: RosterMember, now_ns: int) -> tuple[str, ...]:
    from isocast.runtime.market.roster_files import SOON_NS
    from isocast.security.identities import fingerprint_of

    if book.public_of(member.node, 0) is None:
        state = "revoked"
    elif not member.covers(now_ns):
        state = "expired" if now_ns >= member.not_after_ns else "not yet"
    else:
        state = "ends soon" if now_ns + SOON_NS >= member.not_after_ns else "fine"
    times = [
        f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%d}" for ns in (member.not_before_ns, member.not_after_ns)
    ]
    stripes = " ".join(map(str, member.stripes))
    pins = " ".join(pin.hex()[:_PIN_SHOWN] for pin in member.certificates) or "–"
    return (member.name, member.role.label, stripes, fingerprint_of(member.public), *times, state, pins)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Pins:
    """Which certificates the next roster pins."""

    pin: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None
    """Whose certificate of tls/ here, with the authority's, to pin beside the one before: names, or all that are."""
    pin_only: Flag = False
    """With --pin: the one that was pinned before counts no more."""
    unpin: Flag = False
    """Pin nothing any more: every certificate of the market's authority counts."""

    def added(self, market: Market, wish: RosterWish) -> RosterWish:
        """To what the roster shall change besides; ConfigurationError for options that do not go together."""
        from isocast.runtime.market.roster_making import certified

        if self.pin_only and not self.pin:
            raise ConfigurationError("command line", "--pin-only", "needs --pin, which says whose certificates")
        if self.unpin and self.pin:
            raise ConfigurationError("command line", "--unpin", "pins nothing any more: leave out --pin, or this")
        names = certified(market) if self.pin == [_EVERYBODY] else tuple(self.pin or ())
        return replace(wish, pin=names, pin_only=self.pin_only, unpin=self.unpin)


_NO_PINS = Pins()


@app.command(
    help_epilogue="""Examples:

    isocast keys roster --config market.toml --extend all

    isocast keys roster --config market.toml --add tokyo.request

    isocast keys roster --config market.toml --pin all

    isocast keys roster --config market.toml --unsigned next.roster

Certificates that are pinned are the only ones that doors and pages may show. --pin keeps the one that was pinned before
as well, so that nobody is refused while a node changes over; --pin with --pin-only ends that.
"""
)
def roster(
    *,
    config: ConfigAtRest = None,
    add: Annotated[list[Path] | None, Parameter(negative="", consume_multiple=True)] = None,
    extend: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    days: Count = 730,
    new_revoke_key: Flag = False,
    new_core_key: Flag = False,
    unsigned: Path | None = None,
    pins: Pins = _NO_PINS,
) -> int:
    """Make the next roster: it lists whom the market's file has, and takes away for good what was revoked.

    One that lists other nodes or keys than the one before brings another core key, sealed to each node of the core.

    With root.key here it is signed and kept as roster.bin; `isocast keys apply` then brings it into force. Where there
    is no roster yet, the root is made, and the first roster lists the keys that are here and those that are added.

    Parameters
    ----------
    add
        Requests that `isocast keys rotate` made on other machines: their keys are listed instead of those before.
    extend
        Whose keys count anew for some days from now: names, or all.
    days
        How long keys count that are listed or extended now.
    new_revoke_key
        Make another revoke.key: the old one was stolen. What it revoked, and no roster has taken over, counts again.
    new_core_key
        Bring another core key even if the same nodes may have it: the old one was copied.
    unsigned
        Write the roster to this file instead, for `isocast keys sign` where root.key is.
    pins
        Which certificates count.
    """
    from isocast.runtime.market.roster_files import ROOT, has_roster, load_roster
    from isocast.runtime.market.roster_making import (
        RosterWish,
        load_root,
        make_root,
        next_roster,
        renew_roster,
        replace_revoke_key,
        signers,
    )
    from isocast.runtime.market.secret_files import replace_file
    from isocast.security.roster import unsigned as unsigned_bytes

    market = _market(config)
    if unsigned is None:
        make_root(market)
        load_root(market.keys_directory / ROOT, load_roster(market) if has_roster(market) else None)
    names = [signer.name for signer in signers(market)] if extend == [_EVERYBODY] else extend or []
    requests = tuple([_request(path) for path in add or ()])
    revoke_key = replace_revoke_key(market).public if new_revoke_key else b""
    wish = pins.added(
        market,
        RosterWish(
            requests,
            tuple(names),
            days * _DAY_NS,
            revoke_key,
            keep_revocations=not new_revoke_key,
            new_core_key=new_core_key,
        ),
    )
    made = renew_roster(market, wish) if unsigned is None else next_roster(market, wish, time_ns())
    if made is None:
        line("The roster says all that already: nothing to change.")
        return 0
    if unsigned is None:
        line(f"Roster {made.serial} is signed and kept. Next: copy roster.bin to every machine; isocast keys apply")
    else:
        replace_file(unsigned, unsigned_bytes(made), 0o644)
        line(f"Wrote roster {made.serial} to {unsigned}. Next, where root.key is: isocast keys sign {unsigned}")
    return 0


def _request(path: Path) -> IdentityRequest:
    from isocast.runtime.market.roster_making import read_request

    try:
        return read_request(_bytes_of(path)[:_REQUEST_BYTES_MAX])
    except RosterError as error:
        raise ConfigurationError(str(path), "request", str(error)) from None


def _bytes_of(path: Path) -> bytes:
    from isocast.runtime.market.secret_files import read_file
    from isocast.security.roster import ROSTER_BYTES_MAX

    if not path.exists():
        raise ConfigurationError(str(path), "file", "is missing: copy it from where it was made")
    return read_file(path, ROSTER_BYTES_MAX + 1, 0)


@app.command(
    help_epilogue="""Examples:

    isocast keys sign next.roster --root /media/stick/root.key
"""
)
def sign(file: Path, /, *, root: Path, out: Path | None = None) -> int:
    """Sign a roster that `isocast keys roster --unsigned` wrote: needs no market file and no network.

    It first shows whom the roster lists; compare the fingerprints with those that the nodes' operators told you.

    Parameters
    ----------
    file
        The roster.
    root
        The file of the root's key.
    out
        Where to write it; if left out, over the file itself.
    """
    from isocast.runtime.market.roster_making import certify, load_root
    from isocast.runtime.market.secret_files import replace_file
    from isocast.security.roster import RosterBook, read_unsigned

    try:
        wanted = read_unsigned(_bytes_of(file))
    except RosterError as error:
        raise ConfigurationError(str(file), "roster", str(error)) from None
    raw = certify(wanted, load_root(root, wanted))
    now = time_ns()
    rows = [_listing(RosterBook(wanted), member, now) for member in wanted.members]
    show_table(f"{wanted.name}: roster {wanted.serial}", _MEMBER_FIELDS, rows)
    replace_file(out or file, raw, 0o644)
    line(f"Signed roster {wanted.serial}: {out or file}. Next, on each machine: isocast keys apply {out or file}")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast keys rotate london --config market.toml

    isocast keys rotate tokyo --config market.toml --request tokyo.request
"""
)
def rotate(node: str, /, *, config: ConfigAtRest = None, request: Path | None = None) -> int:
    """Make another key for a node, on its own machine. The old one counts until a roster lists the new one.

    With root.key here the next roster is signed at once. Elsewhere the public half goes into a request: take it to
    where rosters are made, to `isocast keys roster --add`. A node without a key gets its first one.

    Parameters
    ----------
    node
        Its name in the market's file; or operator, or box-office.
    request
        Where to write the request; if left out, NODE.request here.
    """
    from isocast.runtime.market.roster_files import ROOT, has_roster
    from isocast.runtime.market.roster_making import (
        IdentityRequest,
        RosterWish,
        make_request,
        renew_roster,
        rotate_identity,
    )
    from isocast.runtime.market.secret_files import check_directory, replace_file

    market = _market(config)
    market.keys_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_directory(market.keys_directory, 0o077)
    identity = rotate_identity(market, node)
    if request is None and has_roster(market) and (market.keys_directory / ROOT).exists():
        wish = RosterWish((IdentityRequest(node, identity.public, identity.exchange),))
        made = renew_roster(market, wish)
        serial = made.serial if made is not None else "that is there already"
        line(f"{node} has the key {identity.fingerprint}, in roster {serial}. Next: isocast keys apply")
        return 0
    path = request or Path(f"{node}.request")
    replace_file(path, make_request(node, identity), 0o644)
    line(f"{node} has the key {identity.fingerprint}; its request is {path}.")
    line(f"Next, where rosters are made: isocast keys roster --add {path}")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast keys revoke tokyo --config market.toml

    isocast keys revoke tokyo --config market.toml --key /media/stick/revoke.key

Nobody believes the key any more from that moment on, whatever the ring does. The node needs another: keys rotate.
"""
)
def revoke(node: str, /, *, config: Config = None, key: Path | None = None) -> int:
    """Take a node's key away, at once: it was stolen. Tells all nodes of this machine that run.

    Parameters
    ----------
    node
        Its name in the roster.
    key
        The file of the revoke key or of the root, if it is not revoke.key among the market's keys.
    """
    from isocast.runtime.market.roster_files import save_revocation
    from isocast.runtime.market.roster_making import revocation_of

    market = _market(config, running=True)
    path = save_revocation(market, revocation_of(market, node, key))
    line(f"The key of {node} is revoked: {path}")
    line(f"Next, on every other machine: copy that file there, and isocast keys apply {path.name}")
    return _tell(market, whole=False)


@app.command(
    help_epilogue="""Examples:

    isocast keys apply --config market.toml

    isocast keys apply next.roster --config market.toml

Copy the files to every machine and run this there; last where a primary receiver runs. It can be repeated.
"""
)
def apply(*files: Path, config: Config = None) -> int:
    """Bring rosters and revocations into force while the market runs.

    Takes over the files, if they are rightly signed and follow what is here, and tells all nodes of this machine. Where
    a site of the ring is among them, the roster goes into the sequence, and every receiver applies it at the same
    token. Exit code: 0 done, 1 the market does not follow (the message says why), 2 bad input.

    Parameters
    ----------
    files
        Rosters and revocations from other machines; if left out, what is in the keys directory.
    """
    from isocast.runtime.market.roster_files import is_revocation, load_roster, save_revocation, save_roster
    from isocast.security.roster import read_revocation

    market = _market(config, running=True)
    for path in files:
        raw = _bytes_of(path)
        try:
            if is_revocation(raw):
                save_revocation(market, read_revocation(raw, load_roster(market)))
            else:
                save_roster(market, raw)
        except RosterError as error:
            raise ConfigurationError(str(path), "file", str(error)) from None
    return _tell(market, whole=True)


def _tell(market: Market, *, whole: bool) -> int:
    """Tell the nodes that run here; with `whole` also put the newest roster into force."""
    from isocast.runtime.operate import shutdown
    from isocast.runtime.operate.operator_door import OperatorError
    from isocast.runtime.operate.roster_change import RosterChange

    change = RosterChange(market, lambda what: note(f"waiting for {what}"))
    try:
        states = shutdown.run(change.apply() if whole else change.tell())
    except OperatorError as reason:
        note(f"isocast: {reason}")
        return _WRONG
    if not states:
        line("No node of this market runs here: they read it when they start.")
        return 0
    newest = {state.newest for state in states.values()}
    revoked = max(state.revoked for state in states.values())
    serials = ", ".join(map(str, sorted(newest)))
    line(f"{counted(len(states), 'node')} of this machine told: roster {serials}, {counted(revoked, 'key')} revoked.")
    return 0


def _market(config: Path | None, *, running: bool = False) -> Market:
    from isocast.runtime.market.file import open_market

    market = open_market(config, running=running)
    if not market.security.signatures:
        rule = "is false: this market has no roster; remove the key, and run isocast keys init"
        raise ConfigurationError(market.file, "security.signatures", rule)
    return market


def _plan(market: Market, name: str) -> NodePlan:
    from isocast.terms.quantities import suggestion

    if name not in market.by_name:
        rule = f'there is no node "{name}" in {market.file}{suggestion(name, market.by_name)}'
        raise ConfigurationError("command line", "--node", rule)
    return market.node(name)


def _as_json(market: Market, files: Sequence[KeyFile]) -> dict[str, object]:
    return {
        "directory": str(market.keys_directory),
        "files": [
            {
                "name": file.name,
                "made": file.made,
                "fault": file.fault,
                "note": file.note,
                "fingerprint": file.fingerprint,
                "nodes": list(file.nodes),
            }
            for file in files
        ],
    }


def _shortened(names: Sequence[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {rest} others" if rest > 0 else "")
