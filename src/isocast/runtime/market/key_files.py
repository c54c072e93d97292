"""Key files: made once for a market, read by its own user alone.

    core.key              all trusted nodes of the network, and the primary sources: the first one; later rosters bring
                          others, sealed to each node (`security.group_keys`)
    edge.key              trusted receivers, retransmit servers and customers
    region.key            receivers, retransmit servers and the box office; only where lines are sold
    repair.key            retransmit servers, and whoever bought repairs of the narrow stripes; only where there are any
    source-NAME.key       one for each source; a primary one's is also with the trusted receivers, a secondary one's
                          with the primary source that trusts it

Identities, the root and the roster stand beside them (`market.roster_files`).

A file is a line of comment and 64 hexadecimal digits, mode 0600, in a directory of mode 0700. No message, log or
exception ever shows a key; people compare fingerprints.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from secrets import token_bytes
from time import time_ns
from typing import TYPE_CHECKING, NamedTuple

from isocast.runtime.market.core_keys import CoreKeys
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.market.roster_files import (
    REVOKE,
    ROOT,
    ROSTER,
    has_roster,
    identity_file,
    insist_on_listing,
    load_book,
    load_identity,
    load_roster,
    next_identity_file,
    roster_note,
)
from isocast.runtime.market.roster_making import (
    lists_everybody,
    make_identities,
    pins_everybody,
    renew_roster,
    signers,
)
from isocast.runtime.market.secret_files import (
    OTHERS,
    OTHERS_WRITE,
    check_directory,
    create_secret,
    read_secret,
)
from isocast.security.group_keys import former_core_keys, open_core_key
from isocast.security.identities import Identity
from isocast.security.keys import CoreKeyring, EdgeKeyring, SecretKey
from isocast.security.roster import Roster, RosterBook
from isocast.security.sealing import SALT_BYTES, Generations, Opener, Sealer
from isocast.terms.errors import ConfigurationError, RosterError
from isocast.terms.ids import NodeId, is_guest

if TYPE_CHECKING:
    from isocast.runtime.market.subscription import Subscription
    from isocast.security.chains import ChainOpener, ChainSealer

__all__ = [
    "CORE",
    "EDGE",
    "REGION",
    "REPAIR",
    "BroughtKeys",
    "KeyFile",
    "MarketKeys",
    "brought_core_keys",
    "check_keys",
    "init_keys",
    "key_names",
    "load_floor_keys",
    "load_keys",
    "load_repair_key",
    "load_source_key",
    "needed_by",
]

CORE = "core.key"
EDGE = "edge.key"
REGION = "region.key"
REPAIR = "repair.key"

_CORE_ROLES = (
    NodeRole.PRIMARY_RECEIVER,
    NodeRole.SECONDARY_RECEIVER,
    NodeRole.PRIMARY_SOURCE,
    NodeRole.REFORMATION_SERVER,
)
_EDGE_ROLES = (
    NodeRole.PRIMARY_RECEIVER,
    NodeRole.SECONDARY_RECEIVER,
    NodeRole.RETRANSMIT_SERVER,
    NodeRole.CUSTOMER,
)
_BROUGHT = "not needed: the roster brings the core key"
_SEALING_ROLES = (NodeRole.PRIMARY_RECEIVER, NodeRole.SECONDARY_RECEIVER, NodeRole.RETRANSMIT_SERVER)


def _source_file(plan: NodePlan) -> str:
    return f"source-{plan.origin}.key"


def key_names(market: Market) -> tuple[str, ...]:
    """Every key file of a market, and its roster."""
    return (*_secret_names(market), *_roster_names(market))


def _secret_names(market: Market) -> tuple[str, ...]:
    sources = market.by_role(NodeRole.PRIMARY_SOURCE, NodeRole.SECONDARY_SOURCE)
    repairs = () if market.edge is None else (REPAIR,)
    region = (REGION,) if market.subscriptions.enabled else ()
    return (CORE, EDGE, *region, *repairs, *dict.fromkeys(_source_file(plan) for plan in sources))


def _roster_names(market: Market) -> tuple[str, ...]:
    if not market.security.signatures:
        return ()
    return (*(identity_file(signer.name) for signer in signers(market)), ROOT, REVOKE, ROSTER)


def needed_by(market: Market, plan: NodePlan) -> tuple[str, ...]:
    """The files that one node must have, and no others."""
    files = [CORE] if plan.role in _CORE_ROLES else []
    files += [EDGE] if plan.role in _EDGE_ROLES else []
    files += [REGION] if market.subscriptions.enabled and plan.role in _SEALING_ROLES else []
    files += [REPAIR] if market.edge is not None and plan.role is NodeRole.RETRANSMIT_SERVER else []
    files += dict.fromkeys(_source_file(source) for source in _known_sources(market, plan))
    if market.security.signatures:
        files += [ROSTER] if plan.role is NodeRole.CUSTOMER else [identity_file(plan.origin), ROSTER]
    return tuple(files)


def _known_sources(market: Market, plan: NodePlan) -> tuple[NodePlan, ...]:
    """The sources whose key a node holds."""
    if plan.role.is_receiver:
        return tuple(source for source in market.by_role(NodeRole.PRIMARY_SOURCE) if source.stripe == plan.stripe)
    return (plan, *market.children(plan.name)) if plan.role.is_source else ()


@dataclass(frozen=True, slots=True)
class KeyFile:
    """What was found, or done, about one file."""

    name: str
    path: Path
    made: bool = False
    """By this call."""
    fault: str = ""
    """What is wrong, and what to do; empty: nothing."""
    fingerprint: str = ""
    nodes: tuple[str, ...] = ()
    """Who needs it."""
    note: str = ""
    """What one should know of it, though it is no fault."""


def init_keys(market: Market) -> tuple[KeyFile, ...]:
    """Make the directory and every file that is missing; a key that exists is never touched.

    A roster that does not list whom the market's file has is followed by the next one.
    """
    directory = market.keys_directory
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_directory(directory, OTHERS)
        brings = market.security.signatures and has_roster(market) and bool(load_roster(market).ephemeral)
        files = [_made(market, name, make=not (brings and name == CORE)) for name in _secret_names(market)]
        if any(market.uses_tls(plan.address) for plan in market.nodes):
            from isocast.runtime.market.certificates import init_certificates  # noqa: PLC0415 - slow, and rarely needed

            init_certificates(market)  # Before the roster, which pins them.
        if market.security.signatures:
            made = make_identities(market)
            is_whole = lists_everybody(market) and pins_everybody(market)
            made += (ROSTER,) if not is_whole and renew_roster(market) is not None else ()
            files += [_found(market, name, made=name in made) for name in _roster_names(market)]
    except OSError as error:
        raise ConfigurationError(str(directory), "keys", f"cannot be written: {error.strerror}") from error
    return tuple(files)


def _found(market: Market, name: str, *, made: bool) -> KeyFile:
    path = market.keys_directory / name
    note = "" if path.exists() else "not here"
    return KeyFile(name, path, made=made, nodes=_holders(market, name), note=note)


def _made(market: Market, name: str, *, make: bool) -> KeyFile:
    path = market.keys_directory / name
    holders = _holders(market, name)
    if path.exists() or not make:
        return KeyFile(name, path, nodes=holders, note="" if make else _BROUGHT)
    purpose = "every process that has it is trusted. Keep it secret"
    create_secret(path, f"{name} of the isocast market {market.name}: {purpose}.")
    return KeyFile(name, path, made=True, nodes=holders)


def _holders(market: Market, name: str) -> tuple[str, ...]:
    if name in (ROOT, REVOKE, identity_file("operator")):
        return ("operator",)
    people = ("box-office", *(person for floor in market.floors for person in floor.correctors))
    if name in [identity_file(person) for person in people]:
        return (name.removeprefix("identity-").removesuffix(".key"),)
    return tuple(plan.name for plan in market.nodes if name in needed_by(market, plan))


def check_keys(market: Market, plan: NodePlan | None = None) -> tuple[KeyFile, ...]:
    """Every file of the market, or those that one node needs: there, of the right form, and nobody else's to read."""
    names = key_names(market) if plan is None else needed_by(market, plan)
    by_print: dict[str, str] = {}
    book = _book_or_none(market)
    found = []
    for name in names:
        path = market.keys_directory / name
        fault = fingerprint = note = ""
        try:
            fingerprint, note = _examined(market, name, book)
            check_directory(path.parent, OTHERS)
        except ConfigurationError as error:
            fault = error.rule
        twin = by_print.setdefault(fingerprint, name) if fingerprint else name
        if twin != name:
            fault = fault or f"holds the same key as {twin}: remove it and run isocast keys init"
        found.append(KeyFile(name, path, fault=fault, fingerprint=fingerprint, nodes=_holders(market, name), note=note))
    return tuple(found)


def _book_or_none(market: Market) -> RosterBook | None:
    """Of a roster that is not there, or does not count, only its own file says so."""
    with suppress(ConfigurationError):
        return load_book(market)
    return None


def _examined(market: Market, name: str, book: RosterBook | None) -> tuple[str, str]:
    """Fingerprint and note of one file; ConfigurationError for one that is not as it should be."""
    path = market.keys_directory / name
    if name == ROSTER:
        roster = load_roster(market, time_ns())  # Once more, for what is wrong with it.
        return roster.digest[:8].hex(), roster_note(roster)
    if name == CORE and book is not None and book.newest.ephemeral:
        return SecretKey(read_secret(path)).fingerprint if path.exists() else "", _BROUGHT
    if name in (ROOT, REVOKE):
        if book is not None and not path.exists():
            return "", "not here: the operator has it"
        identity = Identity(read_secret(path))
        return identity.fingerprint, "take it offline: no node needs it" if name == ROOT else ""
    if name not in _roster_names(market):
        return SecretKey(read_secret(path)).fingerprint, ""
    plan = next((plan for plan in market.nodes if identity_file(plan.origin) == name), None)
    if plan is None or book is None:
        return Identity(read_secret(path)).fingerprint, ""
    identity = _listed_identity(market, plan, book)
    insist_on_listing(market, plan, identity, book, time_ns())
    return identity.fingerprint, ""


def _listed_identity(market: Market, plan: NodePlan, book: RosterBook) -> Identity:
    member = book.newest.member(plan.node)
    return load_identity(market, plan.origin, b"" if member is None else member.public)


@dataclass(frozen=True, slots=True)
class MarketKeys:
    """The secrets that one node holds, and what it makes of them."""

    core_keys: CoreKeys | None
    """The key of the core; rosters may bring another while the node runs."""
    edge: SecretKey | None
    sources: Mapping[int, SecretKey]
    """By source number: for a receiver those of all primary sources, for a source its own and its children's."""
    core_members: tuple[NodeId, ...] = field(repr=False)
    edge_members: tuple[NodeId, ...] = field(repr=False)
    identity: Identity | None = None
    """Its own; None for a customer, and where nobody signs."""
    followers: list[Identity] = field(default_factory=list, repr=False)
    """Keys that follow its own, as they come to be listed while it runs."""
    book: RosterBook | None = field(default=None, repr=False)
    """Who is who, and who was revoked: it changes while the node runs. None where nobody signs."""
    region: SecretKey | None = None
    """What the keys of lines are derived from; None for a node that does not seal."""
    subscription: Subscription | None = field(default=None, repr=False)
    """What a customer bought; None where nothing is sold."""

    @property
    def roster(self) -> Roster | None:
        """The newest roster that this node knows; None where nobody signs."""
        return None if self.book is None else self.book.newest

    @property
    def core(self) -> SecretKey | None:
        """The newest key of the core that this node knows; None for a node outside the core."""
        return None if self.core_keys is None else self.core_keys.newest

    def core_ring(self) -> CoreKeyring:
        """Tag keys of the core; without the core key nobody is known but the sources."""
        if self.core_keys is None:
            return CoreKeyring(None, self.core_members, self.sources)
        return self.core_keys.ring(self.core_members, self.sources)

    def edge_ring(self) -> EdgeKeyring:
        """Tag keys of the edge; without the edge key nobody is known."""
        return EdgeKeyring(self.edge, self.edge_members)

    def sealer(self, number: int) -> Sealer:
        """For the source of this number, whose key the node must hold; each has a salt of its own."""
        return Sealer(self.sources[number], number, token_bytes(SALT_BYTES), self._generations)

    def chain_sealer(self, source: NodeId, stripe: int, seed: bytes, sealed: Mapping[int, bytes]) -> ChainSealer:
        """For an incarnation of a source that discloses its keys; `sealed` is what its outbox holds."""
        from isocast.security.chains import ChainSealer  # noqa: PLC0415 - it imports the ring; who publishes does not

        number = source >> 32
        salt = token_bytes(SALT_BYTES)
        return ChainSealer(self.sources[number], seed, source, stripe, salt, sealed, self._generations)

    def chain_opener(self, stripe: int) -> ChainOpener:
        """For the messages of every source whose key the node holds, once their links are disclosed."""
        from isocast.security.chains import ChainOpener  # noqa: PLC0415 - as above

        return ChainOpener(self.sources, stripe, self._generations)

    def opener(self) -> Opener:
        """For the messages of every source whose key the node holds."""
        return Opener(self.sources, self._generations)

    @property
    def _generations(self) -> Generations | None:
        """Of seals; None where nobody signs, and so no roster brings any."""
        return None if self.core_keys is None or self.book is None else self.core_keys.seals


def load_keys(market: Market, plan: NodePlan, subscription: Subscription | None = None) -> MarketKeys:
    """The keys of one node; ConfigurationError, which shows none of them, for a file that is missing or not safe.

    Who listens with a package and has no seat needs no edge key: what it paid for lets it in. The package of a customer
    that the market's file names is opened here, unless it is given.
    """
    check_directory(market.keys_directory, OTHERS_WRITE)
    now = time_ns()
    book = load_book(market, now) if market.security.signatures else None
    names = [name for name in needed_by(market, plan) if name != ROSTER]
    if book is not None and book.newest.ephemeral and not (market.keys_directory / CORE).exists():
        names = [name for name in names if name != CORE]
    if market.subscriptions.enabled and plan.role is NodeRole.CUSTOMER:
        from isocast.runtime.market.subscription import subscription_of  # noqa: PLC0415 - most markets sell nothing

        subscription = subscription or subscription_of(market, plan)
        if is_guest(plan.node) and not (market.keys_directory / EDGE).exists():
            names.remove(EDGE)
    secrets = {name: read_secret(market.keys_directory / name) for name in names}
    _insist_on_difference(market, secrets)
    signs = secrets.pop(identity_file(plan.origin), None) is not None
    keys = {name: SecretKey(secret) for name, secret in secrets.items()}
    identity = None
    if signs and book is not None:
        identity = _listed_identity(market, plan, book)
        insist_on_listing(market, plan, identity, book, now)
    return MarketKeys(
        core_keys=_core_keys(market, plan, book, keys.get(CORE)) if plan.role in _CORE_ROLES else None,
        edge=keys.get(EDGE),
        sources={source.number: keys[_source_file(source)] for source in _known_sources(market, plan)},
        core_members=tuple(dict.fromkeys(p.node for p in market.by_role(*_CORE_ROLES) if not p.role.is_source)),
        edge_members=tuple(dict.fromkeys(p.node for p in market.by_role(*_EDGE_ROLES))),
        identity=identity,
        book=book,
        region=keys.get(REGION),
        subscription=subscription,
    )


def _core_keys(market: Market, plan: NodePlan, book: RosterBook | None, first: SecretKey | None) -> CoreKeys | None:
    """The core key of the newest roster, or the file's where none has brought one; and the one before."""
    if book is None or not book.newest.ephemeral:
        return None if first is None else CoreKeys(first, first=first)
    brought = brought_core_keys(market, plan, book.newest)
    if brought is None:
        where, serial = str(market.keys_directory / ROSTER), book.newest.serial
        rule = f"roster {serial} has no core key for {plan.origin}: isocast keys rotate {plan.origin} asks for one"
        raise ConfigurationError(where, "roster", rule)
    if brought.before:
        past = _past_core_keys(market, plan, book)
        return CoreKeys(brought.newest, brought.before[0], first=first, handed_on=brought.before, past=past)
    before: Roster | None = book.newest
    while before is not None and before.ephemeral == book.newest.ephemeral:
        before = book.of_serial(before.serial - 1)
    if before is None or not before.ephemeral:
        return CoreKeys(brought.newest, first, first=first)
    # Of a roster that handed nothing on, since an older version made it.
    found = brought_core_keys(market, plan, before)
    return CoreKeys(brought.newest, None if found is None else found.newest, first=first)


def _past_core_keys(market: Market, plan: NodePlan, book: RosterBook) -> list[SecretKey]:
    """What rosters before the newest brought to the keys that are here: a log may have waited over many of them."""
    found: list[SecretKey] = []
    serial = book.newest.serial - 1
    while (roster := book.of_serial(serial)) is not None:
        serial -= 1
        with suppress(ConfigurationError):  # The newest roster counts; of an older one whatever opens is enough.
            brought = brought_core_keys(market, plan, roster)
            found += () if brought is None else (brought.newest, *brought.before)
    return found


class BroughtKeys(NamedTuple):
    """The core keys that a roster brings a node."""

    newest: SecretKey
    before: tuple[SecretKey, ...]
    """What it hands on, the newest first."""


def brought_core_keys(market: Market, plan: NodePlan, roster: Roster) -> BroughtKeys | None:
    """The core keys that a roster brings a node; None if it brings none, or none to the keys that are here."""
    for name in (identity_file(plan.origin), next_identity_file(plan.origin)):
        path = market.keys_directory / name
        try:
            found = open_core_key(roster, Identity(read_secret(path))) if path.exists() else None
            if found is not None:
                return BroughtKeys(found, former_core_keys(roster, found))
        except RosterError as error:
            raise ConfigurationError(str(market.keys_directory / ROSTER), "roster", str(error)) from None
    return None


def _insist_on_difference(market: Market, secrets: Mapping[str, bytes]) -> None:
    names = list(secrets)
    for place, name in enumerate(names):
        for other in names[:place]:
            if compare_digest(secrets[name], secrets[other]):
                rule = f"holds the same key as {other}: remove it and run isocast keys init"
                raise ConfigurationError(str(market.keys_directory / name), "key", rule)


def load_repair_key(market: Market) -> SecretKey:
    """The key of repairs of the narrow stripes: all that a complete customer of theirs needs."""
    return SecretKey(read_secret(market.keys_directory / REPAIR))


def load_source_key(market: Market, plan: NodePlan) -> SecretKey:
    """The key of one source alone."""
    return SecretKey(read_secret(market.keys_directory / _source_file(plan)))


def load_floor_keys(market: Market, plan: NodePlan) -> MarketKeys:
    """All that a floor's own program needs: the key of its source and, where doors ask for that, its identity."""
    book = identity = None
    if market.doors_identify:
        now = time_ns()
        book = load_book(market, now)
        if not (market.keys_directory / identity_file(plan.origin)).exists():
            rule = f"publishing as {plan.origin} needs its identity besides its key: copy it from the machine of that"
            path = str(market.keys_directory / identity_file(plan.origin))
            raise ConfigurationError(path, "identity", f'{rule} source, or set security.doors = "key" on all machines')
        identity = _listed_identity(market, plan, book)
        insist_on_listing(market, plan, identity, book, now)
    sources = {plan.number: load_source_key(market, plan)}
    return MarketKeys(None, None, sources, core_members=(), edge_members=(), identity=identity, book=book)
