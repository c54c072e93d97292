"""What a customer of narrow stripes hears: stripes that fit its line with everything that comes along with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from isocast.runtime.edge.narrow.places import repair_budget
from isocast.runtime.market.model import Market, NodePlan
from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.rates import budget_bytes, rate_text
from isocast.striping.routing import CustomerStripes, choose_stripes, stripes_for
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import suggestion

__all__ = ["Chosen", "choose", "describe"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The stripes, lines and servers of one customer."""

    stripes: tuple[EdgeStripe, ...]
    lines: tuple[NodePlan, ...]
    servers: tuple[NodePlan, ...] = ()
    complete: bool = False
    from_first: bool = False
    """Whether sessions are wanted from their first messages on."""
    plan_version: int = 0
    period_bytes: int = 0
    """The most IP bytes that they bring in any token period."""
    unnamed: tuple[str, ...] = ()
    """Symbols that were asked for, and that no stripe names."""

    @property
    def symbols(self) -> int:
        """How many symbols they carry."""
        return sum(len(stripe.symbols) for stripe in self.stripes)


def choose(
    market: Market,
    seat: NodePlan,
    plan: StripePlan,
    *,
    rate: int | None = None,
    symbols: Iterable[str] = (),
    lines: Sequence[str] = (),
    complete: bool = False,
    from_first: bool = False,
) -> Chosen:
    """Stripes that fit a line of this rate; without a rate those of the symbols, or all.

    ConfigurationError says what does not fit, or whom the customer cannot hear.
    """
    heard = tuple([_line(market, seat, name) for name in lines or seat.lines[:1]])
    servers = tuple([market.node(name) for name in seat.retransmit]) if complete else ()
    if complete and not servers:
        rule = "is missing: a customer of grade complete needs a retransmit server"
        raise ConfigurationError(market.file, f"nodes.{seat.name}.retransmit", rule)
    # What a stripe takes of a line: a copy by each line, and the repairs of each server.
    costs = {stripe.number: _cost(market, plan, stripe, len(heard), len(servers)) for stripe in plan.stripes}
    dear = replace(plan, stripes=tuple([replace(stripe, rate=costs[stripe.number]) for stripe in plan.stripes]))
    wanted = list(symbols)
    if rate is not None:
        choice = _fitting(dear, rate, wanted, repaired=bool(servers))
    elif wanted:
        choice = stripes_for(dear, wanted)
    else:
        choice = choose_stripes(dear, sum(costs.values()))
    stripes = tuple([plan.by_number[stripe.number] for stripe in choice.stripes])
    period = sum(_period_bytes(market, plan, stripe, len(heard), len(servers)) for stripe in stripes)
    return Chosen(stripes, heard, servers, complete, from_first, plan.version, period, choice.unnamed)


def _fitting(dear: StripePlan, rate: int, wanted: list[str], *, repaired: bool) -> CustomerStripes:
    try:
        return choose_stripes(dear, rate, wanted)
    except ConfigurationError as reason:
        if not repaired:
            raise
        raise ConfigurationError(reason.file, reason.key, f"{reason.rule} (repairs are counted in)") from None


def _period_bytes(market: Market, plan: StripePlan, stripe: EdgeStripe, lines: int, servers: int) -> int:
    own = budget_bytes(stripe.rate, market.timing.token_period_ns)
    return own * lines + repair_budget(market, plan, stripe.number) * servers


def _cost(market: Market, plan: StripePlan, stripe: EdgeStripe, lines: int, servers: int) -> int:
    """Bits a second, rounded up to whole ones."""
    repairs = repair_budget(market, plan, stripe.number) * servers * 8 * SECOND
    return stripe.rate * lines + -(-repairs // market.timing.token_period_ns)


def _line(market: Market, seat: NodePlan, name: str) -> NodePlan:
    found = market.by_name.get(name)
    able = [plan.name for plan in market.receivers if plan.line]
    if found is None or found.name not in able:
        rule = f"{name} sends no narrow stripes{suggestion(name, able)}; these do: {', '.join(able) or 'none'}"
        raise ConfigurationError(market.file, f"nodes.{seat.name}.lines", rule)
    return found


def describe(chosen: Chosen, rate: int | None) -> str:
    """In one sentence."""
    names = ", ".join(stripe.name for stripe in chosen.stripes[:3])
    more = f" and {len(chosen.stripes) - 3} more" if len(chosen.stripes) > 3 else ""  # noqa: PLR2004
    line = "" if rate is None else f" of a line of {rate_text(rate)}"
    return f"{_some(len(chosen.stripes), 'stripe')} ({names}{more}), {_some(chosen.symbols, 'symbol')}{line}"


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
