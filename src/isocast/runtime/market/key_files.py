"""Key files: made once for a market, read by its own user alone.

    core.key              all trusted nodes of the network, and the primary sources
    edge.key              trusted receivers, retransmit servers and customers
    repair.key            retransmit servers, and whoever bought repairs of the narrow stripes; only where there are any
    source-NAME.key       one for each source; a primary one's is also with the trusted receivers, a secondary one's
                          with the primary source that trusts it

A file is a line of comment and 64 hexadecimal digits, mode 0600, in a directory of mode 0700. No message, log or
exception ever shows a key; people compare fingerprints.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_bytes

from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.security.keys import KEY_BYTES, CoreKeyring, EdgeKeyring, SecretKey
from isocast.security.sealing import Opener, Sealer
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import NodeId

__all__ = [
    "CORE",
    "EDGE",
    "REPAIR",
    "KeyFile",
    "MarketKeys",
    "check_keys",
    "init_keys",
    "key_names",
    "load_keys",
    "load_repair_key",
    "load_source_key",
    "needed_by",
]

CORE = "core.key"
EDGE = "edge.key"
REPAIR = "repair.key"

_DIGITS = re.compile(rb"[0-9a-fA-F]{%d}" % (2 * KEY_BYTES))
_FILE_BYTES_MAX = 1_024
_OTHERS = 0o077
_OTHERS_WRITE = 0o022
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


def _source_file(plan: NodePlan) -> str:
    return f"source-{plan.origin}.key"


def key_names(market: Market) -> tuple[str, ...]:
    """Every key file of a market."""
    sources = market.by_role(NodeRole.PRIMARY_SOURCE, NodeRole.SECONDARY_SOURCE)
    repairs = () if market.edge is None else (REPAIR,)
    return (CORE, EDGE, *repairs, *dict.fromkeys(_source_file(plan) for plan in sources))


def needed_by(market: Market, plan: NodePlan) -> tuple[str, ...]:
    """The files that one node must have, and no others."""
    files = [CORE] if plan.role in _CORE_ROLES else []
    files += [EDGE] if plan.role in _EDGE_ROLES else []
    files += [REPAIR] if market.edge is not None and plan.role is NodeRole.RETRANSMIT_SERVER else []
    return (*files, *dict.fromkeys(_source_file(source) for source in _known_sources(market, plan)))


def _known_sources(market: Market, plan: NodePlan) -> tuple[NodePlan, ...]:
    """The sources whose key a node holds."""
    if plan.role.is_receiver:
        return tuple(source for source in market.by_role(NodeRole.PRIMARY_SOURCE) if source.stripe == plan.stripe)
    return (plan, *market.children(plan.name)) if plan.role.is_source else ()


# ---- making


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


def init_keys(market: Market) -> tuple[KeyFile, ...]:
    """Make the directory and every file that is missing; a file that exists is never touched."""
    directory = market.keys_directory
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_directory(directory, _OTHERS)
        return tuple(_made(market, name) for name in key_names(market))
    except OSError as error:
        raise ConfigurationError(str(directory), "keys", f"cannot be written: {error.strerror}") from error


def _made(market: Market, name: str) -> KeyFile:
    path = market.keys_directory / name
    holders = _holders(market, name)
    if path.exists():
        return KeyFile(name, path, nodes=holders)
    text = f"# {name} of the isocast market {market.name}: every process that has it is trusted. Keep it secret.\n"
    text += f"{token_bytes(KEY_BYTES).hex()}\n"
    _create(path, text.encode())
    return KeyFile(name, path, made=True, nodes=holders)


def _create(path: Path, content: bytes) -> None:
    """All of the file or nothing, readable by nobody else at any time, and never over another."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.link(draft, path)
    finally:
        draft.unlink()


def _holders(market: Market, name: str) -> tuple[str, ...]:
    return tuple(plan.name for plan in market.nodes if name in needed_by(market, plan))


# ---- checking


def check_keys(market: Market, plan: NodePlan | None = None) -> tuple[KeyFile, ...]:
    """Every file of the market, or those that one node needs: there, of the right form, and nobody else's to read."""
    names = key_names(market) if plan is None else needed_by(market, plan)
    by_print: dict[str, str] = {}
    found = []
    for name in names:
        path = market.keys_directory / name
        fault = fingerprint = ""
        try:
            fingerprint = _read_key(path).fingerprint
            _check_directory(path.parent, _OTHERS)
        except ConfigurationError as error:
            fault = error.rule
        twin = by_print.setdefault(fingerprint, name) if fingerprint else name
        if twin != name:
            fault = fault or f"holds the same key as {twin}: remove it and run isocast keys init"
        found.append(KeyFile(name, path, fault=fault, fingerprint=fingerprint, nodes=_holders(market, name)))
    return tuple(found)


def _check_directory(directory: Path, forbidden: int) -> None:
    try:
        info = directory.stat()
    except FileNotFoundError as error:
        rule = "is missing: isocast keys init makes it, or copy it from where it was made"
        raise ConfigurationError(str(directory), "keys", rule) from error
    except OSError as error:
        raise ConfigurationError(str(directory), "keys", f"cannot be read: {error.strerror}") from error
    if not stat.S_ISDIR(info.st_mode):
        raise ConfigurationError(str(directory), "keys", "is not a directory")
    if info.st_mode & forbidden:
        rule = f"the directory's mode {stat.S_IMODE(info.st_mode):04o} lets others in: chmod 700 {directory}"
        raise ConfigurationError(str(directory), "mode", rule)


# ---- reading


@dataclass(frozen=True, slots=True)
class MarketKeys:
    """The secrets that one node holds, and what it makes of them."""

    core: SecretKey | None
    edge: SecretKey | None
    sources: Mapping[int, SecretKey]
    """By source number: for a receiver those of all primary sources, for a source its own and its children's."""
    core_members: tuple[NodeId, ...] = field(repr=False)
    edge_members: tuple[NodeId, ...] = field(repr=False)

    def core_ring(self) -> CoreKeyring:
        """Tag keys of the core; without the core key nobody is known but the sources."""
        return CoreKeyring(self.core, self.core_members, self.sources)

    def edge_ring(self) -> EdgeKeyring:
        """Tag keys of the edge; without the edge key nobody is known."""
        return EdgeKeyring(self.edge, self.edge_members)

    def sealer(self, number: int) -> Sealer:
        """For the source of this number, whose key the node must hold."""
        return Sealer(self.sources[number], number)

    def opener(self) -> Opener:
        """For the messages of every source whose key the node holds."""
        return Opener(self.sources)


def load_keys(market: Market, plan: NodePlan) -> MarketKeys:
    """The keys of one node; ConfigurationError, which shows none of them, for a file that is missing or not safe."""
    _check_directory(market.keys_directory, _OTHERS_WRITE)
    directory = market.keys_directory
    keys = {name: _read_key(directory / name) for name in needed_by(market, plan)}
    names = list(keys)
    for place, name in enumerate(names):
        for other in names[:place]:
            if keys[name] == keys[other]:
                rule = f"holds the same key as {other}: remove it and run isocast keys init"
                raise ConfigurationError(str(directory / name), "key", rule)
    return MarketKeys(
        core=keys.get(CORE),
        edge=keys.get(EDGE),
        sources={source.number: keys[_source_file(source)] for source in _known_sources(market, plan)},
        core_members=tuple(dict.fromkeys(p.node for p in market.by_role(*_CORE_ROLES) if not p.role.is_source)),
        edge_members=tuple(dict.fromkeys(p.node for p in market.by_role(*_EDGE_ROLES))),
    )


def load_repair_key(market: Market) -> SecretKey:
    """The key of repairs of the narrow stripes: all that a complete customer of theirs needs."""
    return _read_key(market.keys_directory / REPAIR)


def load_source_key(market: Market, plan: NodePlan) -> SecretKey:
    """The key of one source alone: all that a floor's own program needs."""
    return _read_key(market.keys_directory / _source_file(plan))


def _read_key(path: Path) -> SecretKey:
    def error(key: str, rule: str) -> ConfigurationError:
        return ConfigurationError(str(path), key, rule)

    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise error("file", "is missing: isocast keys init makes it, or copy it from where it was made") from None
    except OSError as reason:
        raise error("file", f"cannot be read: {reason.strerror}") from None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise error("file", "is not a file")
        if info.st_mode & _OTHERS:
            raise error("mode", f"{stat.S_IMODE(info.st_mode):04o} lets others read it: chmod 600 {path}, or a new key")
        if info.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            raise error("owner", "is another user, who can read it: run as that user, or copy the file")
        content = os.read(handle, _FILE_BYTES_MAX)
    finally:
        os.close(handle)
    lines = [line.strip() for line in content.splitlines()]
    digits = [line for line in lines if line and not line.startswith(b"#")]
    if len(digits) != 1 or not _DIGITS.fullmatch(digits[0]):
        raise error("key", f"must be one line of {2 * KEY_BYTES} hexadecimal digits, and comments")
    return SecretKey(bytes.fromhex(digits[0].decode()))
