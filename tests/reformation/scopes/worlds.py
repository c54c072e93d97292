"""Worlds drawn by Hypothesis: poles, the date line, crowds in one place, links that are better or worse or cut."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.reformation.scopes.independent import places

from isocast.reformation.scopes.world import AddressPool, CoverageWorld, MeasuredPath, Paths, ScopeRules, Surface
from isocast.terms.instants import MILLISECOND, SECOND

__all__ = ["DRAIN_NS", "drawn_worlds"]

DRAIN_NS = 30 * SECOND

_LATITUDES = st.one_of(st.sampled_from([-90.0, 90.0, 0.0, 89.5]), st.floats(-90, 90))
_LONGITUDES = st.one_of(st.sampled_from([-180.0, 180.0, 179.9, -179.9, 0.0]), st.floats(-180, 180))
_EARTH = st.tuples(_LATITUDES, _LONGITUDES)
_PLANE = st.tuples(st.integers(0, 40).map(float), st.integers(0, 40).map(float))


@st.composite
def drawn_worlds(draw: st.DrawFn, receivers_min: int = 1) -> CoverageWorld:
    """Small worlds with everything in them."""
    surface = draw(st.sampled_from(list(Surface)))
    place = _EARTH if surface is Surface.EARTH else _PLANE
    receivers = places("r", draw(st.lists(place, min_size=receivers_min, max_size=12)))
    customers = places("c", draw(st.lists(place, max_size=20)))
    far = 9_000.0 if surface is Surface.EARTH else 25.0
    rules = ScopeRules(
        lines=draw(st.integers(1, 3)),
        delay_max_ns=draw(st.sampled_from([20, 60, 500])) * MILLISECOND,
        loss_max=draw(st.sampled_from([0.01, 0.5])),
        radius_max_km=draw(st.sampled_from([far, far / 4, float("inf")])),
        margin_km=draw(st.sampled_from([0.0, 0.0, far / 100])),
        uniform=draw(st.sampled_from([False, False, False, True])),
    )
    links = {}
    if len(customers):
        for receiver, customer in draw(
            st.lists(st.tuples(st.sampled_from(receivers.names), st.sampled_from(customers.names)), max_size=5)
        ):
            links[receiver, customer] = MeasuredPath(
                receiver,
                customer,
                delay_ns=draw(st.sampled_from([None, 0, 5 * MILLISECOND, 90 * MILLISECOND])),
                loss=draw(st.sampled_from([None, 0.0, 0.3])),
                cut=draw(st.sampled_from([False, False, True])),
            )
    paths = Paths(loss_per_1000_km=draw(st.sampled_from([0.0, 0.004])))
    pool = AddressPool(drain_ns=DRAIN_NS, drain_everywhere=draw(st.booleans()))
    return CoverageWorld(surface, receivers, customers, paths, tuple(links.values()), rules, pool)
