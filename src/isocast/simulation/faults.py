"""Carries out a scenario's faults on a world: crashes, cuts, clocks, liars; and an operator's planned changes."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from isocast.checks.facts import ClockStepped, Crashed, Cut, Healed, Ordered, Paused, Restarted, Resumed
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ReformationServer
from isocast.ring.inputs import ControlRequested, DrainRequested, ForceRequested
from isocast.ring.issuing import Issuer
from isocast.ring.ledger import LogEntry
from isocast.ring.storage import SiteState
from isocast.simulation.byzantine import Byzantine
from isocast.simulation.fault_plan import ATTACKS, BYZANTINE, ROSTER_FAULTS
from isocast.simulation.host import Doom
from isocast.terms.ids import NO_EPOCH, OPERATOR, NodeId, is_server, is_site, is_source
from isocast.terms.instants import NEVER
from isocast.wire.orders import force_entry, with_order
from isocast.wire.packets import ControlEntry, ControlKind, short_digest_of

if TYPE_CHECKING:
    from isocast.security.roster import Roster
    from isocast.simulation.fault_plan import PlannedFault
    from isocast.simulation.host import SimulatedHost
    from isocast.simulation.world import World

__all__ = ["FaultPlan", "Operator", "correct_sites", "turn"]


# An owner that lies: it reveals another nonce in its token than the one that it committed to.
#
# Its commitments stay true, so that it is honest again as soon as it wants to be.


def turn(machine: object, *, lying: bool) -> None:
    """Make a site lie, or be honest again; only a primary receiver can lie."""
    if not isinstance(machine, PrimaryReceiver):
        return
    issuer = machine.receiver.issuer
    honest = type(issuer).__bases__[0] if type(issuer).__name__ == _LIAR else type(issuer)
    issuer.__class__ = type(_LIAR, (honest,), {"reveal": _lie}) if lying else honest


_LIAR = "LyingIssuer"


def _lie(issuer: Issuer, epoch: object, place: int) -> bytes:
    return short_digest_of(b"a lie", Issuer.reveal(issuer, epoch, place))


# A simulated operator: drains sites, changes U, and forces it when a majority will never come back (protocol
# §5).
#
# An operator sees what a person would: who runs, and what the newest log says of U. It asks one member of the ring,
# waits for a few cycles, and asks another if nothing came of it.


_PATIENCE_CYCLES = 3
"""Cycles for one request to show in U: a token, its certificate, and a reformation in between."""
_ORDER_LASTS = 4
"""Times that patience: an order counts for so long."""


class Operator:
    """Asks until it is done."""

    def __init__(self, world: World) -> None:
        """Nothing is wanted."""
        self.world = world
        self.wishes: dict[str, None] = {}
        """What is not done yet, for people."""
        self._turn = 0
        self._last_order = 0

    def drain(self, site: NodeId, *, leaving: bool) -> None:
        """Ask a site to leave the ring, or to come back; one that is down has left, and comes back by itself."""
        self.world.hosts[site].feed(DrainRequested(leaving), PrimaryReceiver)

    def add(self, site: NodeId) -> None:
        """Start a site that knows nothing, and make it part of U."""
        if site not in self.world.hosts:
            self.world.join(site)
        self._want(ControlEntry(ControlKind.ADD_SITE, site, b""))

    def remove(self, site: NodeId) -> None:
        """Take a site out of U, be it alive or not."""
        self._want(ControlEntry(ControlKind.REMOVE_SITE, site, b""))

    def put_into_force(self, roster: Roster) -> None:
        """Let a roster count, from a token on."""
        self.wishes[f"put roster {roster.serial} into force"] = None
        # First everybody has it.
        self.world.agenda.put(self.world.agenda.now + self._patience_ns() // 2, self._announce, roster)

    def _announce(self, roster: Roster) -> None:
        world, rosters = self.world, self.world.rosters
        if rosters is None or rosters.is_in_force(roster):
            self.wishes.pop(f"put roster {roster.serial} into force", None)
            return
        if not rosters.is_announced(roster):
            rosters.announce(roster)
        world.agenda.put(world.agenda.now + self._patience_ns(), self._announce, roster)

    def force(self, universe: tuple[NodeId, ...]) -> None:
        """Tell a server that these sites are U."""
        self.wishes[f"force U to {universe}"] = None
        self._force(universe)

    # Until it is done ---------------------------------------------------------------------------

    def _want(self, entry: ControlEntry) -> None:
        self.wishes[_told(entry)] = None
        self._ask(entry)

    def _ask(self, entry: ControlEntry) -> None:
        """Ask the next member of the ring, unless U is as wanted."""
        world = self.world
        if (entry.subject in world.universe()) == (entry.kind is ControlKind.ADD_SITE):
            self.wishes.pop(_told(entry), None)
            return
        members = [site for site in self._ring() if self._serves(site)]
        if members:
            world.hosts[members[self._turn % len(members)]].feed(
                ControlRequested(self._ordered(entry)), PrimaryReceiver
            )
        world.agenda.put(world.agenda.now + self._patience_ns(), self._ask_another, entry)

    def _ask_another(self, entry: ControlEntry) -> None:
        self._turn += 1
        self._ask(entry)

    def _force(self, universe: tuple[NodeId, ...]) -> None:
        world = self.world
        if self._is_forced(tuple(sorted(universe))):
            self.wishes.pop(f"force U to {universe}", None)
            return
        servers = [server for server in world.servers if world.hosts[server].running]
        if servers:
            self._turn += 1
            world.hosts[servers[self._turn % len(servers)]].feed(
                ForceRequested(universe, self._ordered(force_entry(0, sorted(set(universe)))).order), ReformationServer
            )
        world.agenda.put(world.agenda.now + self._patience_ns(), self._force, universe)

    def _ordered(self, entry: ControlEntry) -> ControlEntry:
        """As the operator signs it, each time anew; in a world without signatures nobody asks for more than a word."""
        world = self.world
        if world.scenario.signatures == "off":
            return entry
        now = world.agenda.now
        self._last_order = max(self._last_order + 1, now)
        until = now + _ORDER_LASTS * self._patience_ns()
        ordered = with_order(entry, world.signer(OPERATOR), world.settings.stripe, self._last_order, until)
        world.fact(Ordered(now, ordered))
        return ordered

    def _is_forced(self, universe: tuple[NodeId, ...]) -> bool:
        """Whether the newest log has the token that forces U so."""
        newest = self.world.newest()
        if newest is None:
            return False
        accepted, held = newest.receiver.accepted, newest.receiver.held
        rings = [ring for ring in self.world.rings if ring.forced and ring.universe == universe]
        return any(ring.ballot <= accepted and ring.first_token <= held for ring in rings)

    def _patience_ns(self) -> int:
        timing = self.world.settings.timing
        cycle_ns = (len(self.world.universe()) + 1) * timing.token_period_ns
        return _PATIENCE_CYCLES * cycle_ns + 4 * timing.reformation_ns

    def _ring(self) -> tuple[NodeId, ...]:
        newest = self.world.newest()
        return newest.receiver.ring.ring if newest is not None and newest.receiver.ring is not None else ()

    def _serves(self, site: NodeId) -> bool:
        host = self.world.hosts[site]
        return host.running and isinstance(host.machine, PrimaryReceiver)


def _told(entry: ControlEntry) -> str:
    return f"{entry.kind.name.lower().replace('_', ' ')} {entry.subject}"


_NEXT_LIFE = 256
"""Between a server's id and the id under which it comes back without its disk."""
_LASTING = ("crash", "clock-step", "clock-drift")
"""Faults that may stay for ever while everybody else must go on."""
_DOOMED_PERIODS = 10
"""How long a crash waits for a step that writes: a site writes in every period, a server for its ballots alone."""


class FaultPlan:
    """Puts every fault, and its end, on the world's agenda."""

    def __init__(self, world: World) -> None:
        """Read the scenario's faults."""
        self.world = world
        self.lost_disks: dict[NodeId, None] = {}
        """Sites that came back without their disk: they may never vote again under their id."""
        self.operator = Operator(world)
        self.byzantine = Byzantine(world)
        if any(fault.kind in (*BYZANTINE, *ATTACKS) for fault in world.scenario.faults):
            world.tamper = self.byzantine.sends
        self.liars: dict[NodeId, None] = {}
        self.lost_outboxes: dict[NodeId, NodeId] = {}
        """Sources that lost their outbox, and under which id each came back."""
        self._down: dict[NodeId, int] = {}
        self._dooms: dict[int, int] = {}
        """Of each crash inside a step, by its place in the scenario: when it is over."""
        for place, fault in enumerate(world.scenario.faults):
            if fault.inside:
                self._dooms[place] = fault.at_ns + self._doomed_ns + fault.until_ns - fault.at_ns
                world.agenda.put(fault.at_ns, self._doom, place)
                continue
            world.agenda.put(fault.at_ns, self._start, fault)
            if fault.until_ns < NEVER:
                world.agenda.put(fault.until_ns, self._end, fault)

    @property
    def over_at(self) -> int:
        """When the last fault that ends has ended."""
        faults = [fault for fault in self.world.scenario.faults if not fault.inside]
        ends = [(fault.until_ns if fault.until_ns < NEVER else fault.at_ns) + fault.by_ns for fault in faults]
        return max([*ends, *self._dooms.values()], default=0)

    @property
    def _doomed_ns(self) -> int:
        return _DOOMED_PERIODS * self.world.settings.timing.token_period_ns

    # Crashes inside a step ----------------------------------------------------------------------

    def _doom(self, place: int) -> None:
        """The nodes go down inside the next step that writes, one after the other, unless none comes."""
        world, fault = self.world, self.world.scenario.faults[place]
        span_ns = fault.until_ns - fault.at_ns

        def strike(host: SimulatedHost) -> None:
            self._crash(host.node)
            self._dooms[place] = max(self._dooms[place], world.agenda.now + span_ns)
            world.agenda.put(world.agenda.now + span_ns, lambda _: self._boot(host.node, disk_kept=True), None)

        def spare(_: object) -> None:
            for host, doom in doomed:
                if host.doom is doom:
                    host.doom = None

        hosts = [world.hosts[self._present(node)] for node in fault.sites if self._present(node) in world.hosts]
        doomed = [(host, Doom(fault.inside, strike, self._written)) for host in hosts]
        for host, doom in doomed:
            host.doom = doom
        world.agenda.put(world.agenda.now + self._doomed_ns, spare, None)

    def _written(self, host: SimulatedHost, entry: LogEntry) -> bool:
        """Whether an entry is in a site's log on disk."""
        disk = self.world.disks.get(host.node)
        return isinstance(disk, SiteState) and disk.entries.get(entry.token.token_number) is entry

    def _present(self, node: NodeId) -> NodeId:
        """Under which id a node runs."""
        return self.world.present(node)

    # Everything else ----------------------------------------------------------------------------

    def is_up(self, node: NodeId) -> bool:
        """Whether a node runs."""
        return node in self.world.hosts and self.world.hosts[node].machine is not None

    def _start(self, fault: PlannedFault) -> None:
        world = self.world
        match fault.kind:
            case "crash":
                for node in fault.sites:
                    self._crash(self._present(node))
            case "late":
                world.network.set_late(fault.late, fault.by_ns)
            case "restart":
                for node in fault.sites:
                    self._crash(node)
                    self._down[node] = 1
                    self._boot(node, disk_kept=fault.disk_kept)
            case "partition" | "one-way" | "isolate":
                if self._parts_core(fault):
                    world.fact(Cut(world.agenda.now))
                world.network.cut(self._pairs(fault))
            case "clock-step":
                self._step_clocks(fault, fault.step_ns)
            case "clock-drift":
                self._let_drift(fault, fault.rate_ppm)
            case "loss":
                world.network.set_loss(fault.loss)
            case "pause":
                self._pause([node for node in fault.sites if self.is_up(node)])
            case "force":
                self.operator.force(fault.sites)
            case "lie":
                self._lie(fault.sites, lying=True)
            case _:
                self._change(fault)

    def _pause(self, nodes: list[NodeId]) -> None:
        for node in nodes:
            self.world.hosts[node].pause()
            self.world.fact(Paused(self.world.agenda.now, node))

    def _change(self, fault: PlannedFault) -> None:
        """Members that lie from now on, or a planned change, site by site."""
        if fault.kind in (*BYZANTINE, *ATTACKS):
            self.byzantine.turn(fault.sites, fault.kind, lying=True)
            return
        if fault.kind in ROSTER_FAULTS:
            self._change_rosters(fault)
            return
        for node in fault.sites:
            self._change_site(fault.kind, node)

    def _change_rosters(self, fault: PlannedFault) -> None:
        rosters = self.world.rosters
        if rosters is None:
            raise AssertionError(fault.kind)
        match fault.kind:
            case "roster":
                self.operator.put_into_force(rosters.rotate(fault.sites))
            case "revoke":
                rosters.revoke(fault.sites)
            case "stale":
                rosters.stale(fault.sites, ends=False)
            case _:
                raise AssertionError(fault.kind)

    def _change_site(self, kind: str, node: NodeId) -> None:
        match kind:
            case "drain":
                self.operator.drain(node, leaving=True)
            case "add":
                self.operator.add(node)
            case "remove":
                self.operator.remove(node)
            case _:
                raise AssertionError(kind)

    def _end(self, fault: PlannedFault) -> None:
        world = self.world
        match fault.kind:
            case "crash":
                for node in fault.sites:
                    self._boot(self._present(node), disk_kept=fault.disk_kept)
            case "late":
                world.network.set_late(0.0, 0)
            case "lie":
                self._lie(fault.sites, lying=False)
            case "partition" | "one-way" | "isolate":
                world.network.heal(self._pairs(fault))
                if self._parts_core(fault):
                    world.fact(Healed(world.agenda.now))
            case "clock-step":
                self._step_clocks(fault, -fault.step_ns)
            case "clock-drift":
                self._let_drift(fault, 0)
            case "loss":
                world.network.set_loss(world.scenario.loss)
            case "drain":
                for node in fault.sites:
                    self.operator.drain(node, leaving=False)
            case "pause":
                for node in fault.sites:
                    world.fact(Resumed(world.agenda.now, node))
                    world.hosts[node].resume()
            case _:
                self._end_attack(fault)

    def _end_attack(self, fault: PlannedFault) -> None:
        if fault.kind in (*BYZANTINE, *ATTACKS):
            self.byzantine.turn(fault.sites, fault.kind, lying=False)
        elif fault.kind == "stale" and self.world.rosters is not None:
            self.world.rosters.stale(fault.sites, ends=True)

    def _lie(self, sites: tuple[NodeId, ...], *, lying: bool) -> None:
        for site in sites:
            if lying:
                self.liars[site] = None
            else:
                self.liars.pop(site, None)
            turn(self.world.hosts[site].machine, lying=lying)

    def _crash(self, node: NodeId) -> None:
        self._down[node] = self._down.get(node, 0) + 1
        if self.is_up(node):
            self.world.hosts[node].crash()
            self.world.fact(Crashed(self.world.agenda.now, node))

    def _boot(self, node: NodeId, *, disk_kept: bool) -> None:
        """Come back, unless another crash still holds the node down."""
        world = self.world
        if not disk_kept:
            self.lost_disks[node] = None
            self._forget(node)
        self._down[node] = self._down.get(node, 1) - 1
        if self._down[node] > 0:
            return
        if world.edge is not None and node in world.edge.everybody:
            kept = node not in self.lost_disks
            self.lost_disks.pop(node, None)
            world.fact(Restarted(world.agenda.now, node, kept, NO_EPOCH, NO_EPOCH, 0))
            world.hosts[node].boot(world.edge.machine(node))
            return
        if is_server(node) and node in self.lost_disks:
            # It may have used ballots that it forgot: it comes back as somebody else.
            world.add(node + _NEXT_LIFE)
            return
        if is_source(node) and node in self.lost_disks and not world.build.same_incarnation:
            # It may have used numbers that it forgot: it comes back as its next incarnation.
            self.lost_outboxes[node] = node + 1
            world.replace_source(node, node + 1)
            return
        forgot = node in self.lost_disks and not world.build.remembers_nothing
        machine = world.machine(node, forgot=forgot)
        disk = world.disks[node]
        promised, accepted, held = NO_EPOCH, NO_EPOCH, 0
        if isinstance(disk, SiteState):
            promised, held = disk.promised, disk.held
            accepted = disk.ring.ballot if disk.ring else NO_EPOCH
        world.fact(Restarted(world.agenda.now, node, node not in self.lost_disks, promised, accepted, held))
        turn(machine, lying=node in self.liars)
        world.hosts[node].boot(machine)

    def _forget(self, node: NodeId) -> None:
        """A node's disk is blank, a receiver's journal with it."""
        world = self.world
        if world.edge is None or node not in world.edge.everybody:
            world.disks[node] = world.blank_disk(node)
        if world.edge is not None and (is_site(node) or node in world.edge.everybody):
            world.edge.forget(node)
        if world.floor is not None and is_site(node):
            world.floor.forget(node)

    def _step_clocks(self, fault: PlannedFault, step_ns: int) -> None:
        for node in fault.sites:
            host = self.world.hosts[node]
            host.clock.step(step_ns)
            self._clock_changed(host, kept=self.keeps_time(node))

    def _let_drift(self, fault: PlannedFault, rate_ppm: int) -> None:
        for node in fault.sites:
            host = self.world.hosts[node]
            host.clock.run_away(self.world.agenda.now, rate_ppm)
            # From now on its error only grows: nobody relies on the moment at which it leaves its bound.
            self._clock_changed(host, kept=not rate_ppm and self.keeps_time(node))

    def _clock_changed(self, host: SimulatedHost, *, kept: bool) -> None:
        if is_site(host.node):
            self.world.fact(ClockStepped(self.world.agenda.now, host.node, kept))
        host.rearm()

    def keeps_time(self, node: NodeId) -> bool:
        """Whether a node's clock is within its bound."""
        world = self.world
        return abs(world.hosts[node].clock.error_ns(world.agenda.now)) <= world.settings.timing.clock_error_ns

    @property
    def lasting(self) -> tuple[NodeId, ...]:
        """Nodes that stay down, or whose clock stays wrong, to the end.

        None where an operator takes sites out, or where no majority or no server is left: then L7 promises nothing.
        """
        world, faults = self.world, self.world.scenario.faults
        universe = world.universe()
        sound = [site for site in correct_sites(world, self) if site in universe]
        taken_out = any(fault.kind in ("remove", "force") for fault in faults)
        if taken_out or len(sound) <= len(universe) // 2 or not any(map(self.is_up, world.servers)):
            return ()
        ended = [fault for fault in faults if fault.until_ns == NEVER and fault.kind in _LASTING]
        named = dict.fromkeys([node for fault in ended for node in fault.sites])
        core = [node for node in named if world.edge is None or node not in world.edge.everybody]
        return tuple([node for node in core if not self.is_up(node) or not self.keeps_time(node)])

    def _parts_core(self, fault: PlannedFault) -> bool:
        """Whether a cut is between nodes of the core: what happens at the edge is no matter of the ring."""
        edge = self.world.edge
        return edge is None or any(a not in edge.everybody and b not in edge.everybody for a, b in self._pairs(fault))

    def _pairs(self, fault: PlannedFault) -> list[tuple[NodeId, NodeId]]:
        """Ordered pairs between which nothing passes."""
        if fault.kind == "one-way":
            return [(a, b) for a in fault.groups[0] for b in fault.groups[1]]
        if fault.kind == "isolate":
            others = [node for node in self.world.hosts if node not in fault.sites]
            groups: list[tuple[NodeId, ...]] = [*[(site,) for site in fault.sites], tuple(others)]
        else:
            groups = list(fault.groups)
        return [pair for one, other in combinations(groups, 2) for a in one for b in other for pair in ((a, b), (b, a))]


def correct_sites(world: World, plan: FaultPlan) -> tuple[NodeId, ...]:
    """Sites, primary ones of U and secondary ones, that are up, remember everything, and whose clock is right."""
    trusted = (*world.universe(), *world.tree.secondary_sites)
    liars = world.scenario.byzantine
    sites = [site for site in world.all_sites if site in trusted and site not in plan.lost_disks and site not in liars]
    return tuple([site for site in sites if plan.is_up(site) and plan.keeps_time(site)])
