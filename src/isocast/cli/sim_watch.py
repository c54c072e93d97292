"""Ties a scene to a run: receivers that say what passes through them, and a network that says what it loses."""

from __future__ import annotations

from isocast.cli.sim_scene import Key, Scene, Site
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.effects import Effect
from isocast.ring.inputs import PacketsArrived
from isocast.ring.receiver import Mode
from isocast.simulation.build import Build
from isocast.simulation.network import Burst
from isocast.simulation.scenario import Scenario
from isocast.simulation.timed import TimedRun
from isocast.terms.ids import NodeId

__all__ = ["state_of", "watch"]


def watch(scenario: Scenario, seed: int) -> tuple[Scene, TimedRun]:
    """A run that is about to begin, and the scene that follows it."""
    scene = Scene(scenario)

    class WatchedReceiver(PrimaryReceiver):
        """The product's receiver; what goes in and comes out is counted."""

        def step(self, event: object, now: int) -> tuple[Effect, ...]:
            site = self.receiver.site
            if isinstance(event, PacketsArrived) and scene.sites[site].lacking:
                scene.arrived(site, event.packets)
            effects = super().step(event, now)
            if effects:
                scene.sent(site, effects)
            return effects

    run = TimedRun(scenario, seed, Build(receiver=WatchedReceiver), transcript=scene.fact)
    world, network = run.world, run.world.network

    def needs(site: NodeId, key: Key) -> bool:
        machine = world.hosts[site].machine
        if not isinstance(machine, PrimaryReceiver):
            return False
        ledger = machine.receiver.ledger
        what, number = key
        if isinstance(what, str):
            return number > ledger.held
        return number >= ledger.next_number.get(what, 1) and (what, number) not in ledger.waiting

    scene.needs = needs
    told = network.lost_hook

    def lost(to: NodeId, burst: Burst) -> None:
        if told is not None:
            told(to, burst)
        scene.lost_packets(to, burst)

    network.lost_hook = lost
    return scene, run


def state_of(scene: Scene, run: TimedRun, site: Site) -> str:
    """One word on what a city does."""
    machine = run.world.hosts[site.site].machine
    if not isinstance(machine, PrimaryReceiver):
        return "down"
    receiver = machine.receiver
    if receiver.mode is Mode.SEALED:
        return "ballot" if scene.epoch else "start"
    if scene.schedule is None or site.site not in scene.schedule.ring:
        return "outside"
    return "token" if scene.holder == site.site else "ring"
