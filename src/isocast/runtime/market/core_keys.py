"""The core keys of a running node: by which it speaks, and which it hears besides while the market changes over.

A new roster may bring another core key. From the moment on that a node knows the roster it hears both; it speaks by
the new one as soon as the roster is in force, or somebody else has spoken by it, whichever comes first. So nobody is
ever unheard by whoever knows the roster, and no instant has to be agreed on. The key before is heard for a minute
more, and then forgotten. The tag keys of sources change over with it, and so do the seals of their payloads: both are
made of the source's own key and of the core key that a roster brought. What was sealed before the change still opens,
by the core keys that the newest roster hands on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Final, NoReturn

from isocast.security.keys import CoreKeyring, SecretKey
from isocast.security.sealing import Generations
from isocast.terms.ids import NodeId, source_id, without_incarnation

__all__ = ["FORMER_S", "CoreKeys", "TurningKeyring"]

FORMER_S: Final = 60.0
"""How long the key before is heard: packets that were under way, and nodes that have yet to hear the first new one."""


class CoreKeys:
    """What one process knows of core keys; shows itself by fingerprints, and is neither copied nor pickled."""

    def __init__(
        self,
        current: SecretKey,
        former: SecretKey | None = None,
        clock: Callable[[], float] = monotonic,
        *,
        first: SecretKey | None = None,
        handed_on: Sequence[SecretKey] = (),
        past: Iterable[SecretKey] = (),
    ) -> None:
        """`former`: what others may still speak by when this node starts; `clock` in seconds.

        `first`: the key that no roster brought, if this node knows it. `handed_on`: the keys before that the newest
        roster brings besides, the newest first. `past`: what rosters before it brought.
        """
        self.current = current
        self._first = first
        self._other = former
        self._is_newer = False
        self._clock = clock
        self._until = clock() + FORMER_S
        self._rings: list[TurningKeyring] = []
        self._handed_on = tuple(handed_on)
        self.seals = Generations(past=[key for key in past if key != first])
        """Of the sources' payloads."""
        self._turn_seals()

    @property
    def newest(self) -> SecretKey:
        """Of the newest roster that is known: doors of the core are opened by it."""
        return self._other if self._is_newer and self._other is not None else self.current

    def expect(self, secret: SecretKey, handed_on: Sequence[SecretKey] = ()) -> bool:
        """Hear another key from now on; False for one that is known. `handed_on`: what its roster brings besides."""
        if secret in (self.newest, self.current):
            return False
        if self._is_newer:
            self.turn()  # Two rosters came at once: the one between is what the others speak by.
        self._other, self._is_newer = secret, True
        self._handed_on = tuple(handed_on)
        self._turn_seals()
        for ring in self._rings:
            ring.renew()
        return True

    def turn(self) -> None:
        """Speak by the newest key from now on; the one before is heard for a while."""
        if not self._is_newer or self._other is None:
            return
        self.current, self._other, self._is_newer = self._other, self.current, False
        self._until = self._clock() + FORMER_S
        self._turn_seals()
        for ring in self._rings:
            ring.renew()

    def _turn_seals(self) -> None:
        """Open by all known keys for as long as this node runs, and seal by the key that it sends with."""
        keys = (self.newest, self.current, *(() if self._other is None else (self._other,)), *self._handed_on)
        known = [key for key in map(self.generation, keys) if key is not None]
        self.seals.turn(known, self.generation(self.current))

    def other(self) -> SecretKey | None:
        """What is heard besides the key by which this node speaks; None once that is over."""
        if self._other is not None and not self._is_newer and self._clock() >= self._until:
            self._other = None
            for ring in self._rings:
                ring.renew()
        return self._other

    def generation(self, key: SecretKey) -> SecretKey | None:
        """What a core key adds to tags and seals of sources: nothing, if it is what the market began with."""
        return None if key == self._first else key

    @property
    def turns(self) -> bool:
        """Whether the other key is newer: a node that hears it turns to it."""
        return self._is_newer

    def ring(self, members: Iterable[NodeId], sources: Mapping[int, SecretKey]) -> TurningKeyring:
        """Tag keys of the core, which follow what happens here."""
        made = TurningKeyring(self, tuple(members), sources)
        self._rings.append(made)
        return made

    def __repr__(self) -> str:
        return f"CoreKeys({self.current!r})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("core keys are not pickled or copied")


class TurningKeyring(CoreKeyring):
    """Tag keys of the core by sender, as they are now."""

    def __init__(self, keys: CoreKeys, members: tuple[NodeId, ...], sources: Mapping[int, SecretKey]) -> None:
        """Of these core keys."""
        super().__init__(keys.current, members, sources, keys.generation(keys.current))
        self._core_keys = keys
        self._members = frozenset(members)
        self._known_sources = frozenset(source_id(number, 0) for number in sources)
        self._core_sources = sources
        self._besides: CoreKeyring | None = None
        self.renew()

    def renew(self) -> None:
        """The core keys have changed."""
        keys = self._core_keys
        self.update(CoreKeyring(keys.current, sorted(self._members), {}))
        self.turn_sources(keys.generation(keys.current))
        # Not `other()`: whether a former key's time is over is asked when somebody speaks by it.
        other = keys._other  # noqa: SLF001 - the two are one thing
        self._besides = None
        if other is not None:
            self._besides = CoreKeyring(other, sorted(self._members), self._core_sources, keys.generation(other))

    def besides(self, sender: NodeId) -> CoreKeyring | None:
        """By what else a node of the core, or a source, may speak; None once that is over."""
        if self._besides is None or self._core_keys.other() is None:
            return None
        is_known = sender in self._members or without_incarnation(sender) in self._known_sources
        return self._besides if is_known else None

    def heard(self) -> None:
        """A packet came under the other key: if that is the newer one, this node turns to it."""
        if self._core_keys.turns:
            self._core_keys.turn()
