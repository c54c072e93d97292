"""`isocast certs`: make, renew and show the certificates of a market's doors and pages. No command shows a secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import ConfigAtRest, Flag
from isocast.cli.render import line, show_json, show_table
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.market.certificates import CertificateFile
    from isocast.runtime.market.model import Market

__all__ = ["CertificateDays", "app", "certify"]

app = App(
    name="certs",
    help="Make, renew and show the certificates of a market's doors and pages.",
    help_epilogue="Start with:\n\n    isocast certs init --config market.toml\n",
)

_WRONG = 1
CertificateDays: TypeAlias = Annotated[
    int, Parameter(validator=Number(gte=1, lte=36_500), help="How long the certificate is good.")
]
_SHOWN = 16


@app.command(
    help_epilogue="""Examples:

    isocast certs init --config market.toml

`isocast keys init` does the same for a market whose addresses are not loopback. Copy tls/ca.crt to every machine, a
node's two files to where it runs, and keep tls/ca.key offline.
"""
)
def init(*, config: ConfigAtRest = None, json: Flag = False) -> int:
    """Make the market's own authority, a certificate for each node, and the token of status pages, where missing.

    Parameters
    ----------
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.market.certificates import init_certificates

    market = _market(config)
    files = init_certificates(market)
    if json:
        show_json(_as_json(market, files))
        return 0
    rows = [(file.name, "made" if file.made else "kept: it exists") for file in files]
    show_table(f"Certificates in {market.keys_directory / 'tls'}", ("certificate", ""), rows)
    made = sum(file.made for file in files)
    line(f"{made} made, {len(files) - made} kept.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast certs node london --config market.toml

Run it where tls/ca.key is, and copy london.crt and london.key to where the node runs: it shows them from the next
connection on. Where the roster pins certificates, the next roster pins both, the old one and the new one, and is in
force everywhere before those two files are copied. With root.key here it is made at once.
"""
)
def node(
    name: str,
    *,
    config: ConfigAtRest = None,
    days: CertificateDays = 825,
) -> int:
    """Make a new key and certificate for one node, in place of the old ones.

    Parameters
    ----------
    name
        The node's table in the market file.
    """
    from isocast.runtime.market.certificates import renew_certificate

    market = _market(config)
    made = renew_certificate(market, name, days=days)
    for said in _pin_renewed(market, name):
        line(said)
    key = made.path.with_suffix(".key").name
    line(f"{made.path} is new: copy it and {key} to the machine of {name}, which shows it from then on.")
    return 0


def _pin_renewed(market: Market, name: str) -> tuple[str, ...]:
    """A market that pins certificates pins the new one beside the old one, where its root is; what people do next."""
    from isocast.runtime.market.pins import pinning_roster
    from isocast.runtime.market.roster_files import ROOT
    from isocast.runtime.market.roster_making import RosterWish, renew_roster

    before = pinning_roster(market)
    if before is None or before.by_name(name) is None:
        return ()
    if not (market.keys_directory / ROOT).exists():
        return (f"First, where root.key is, with {name}.crt: isocast keys roster --pin {name}; isocast keys apply",)
    roster = renew_roster(market, RosterWish(pin=(name,)))
    if roster is None:
        return ()
    return (
        f"Roster {roster.serial} pins it beside the one before. First: roster.bin to every machine; isocast keys apply",
        f"Last, when {name} shows the new one: isocast keys roster --pin {name} --pin-only; isocast keys apply",
    )


@app.command(
    help_epilogue="""Examples:

    isocast certs show --config market.toml

Equal fingerprints on two machines mean equal certificates. Exit code: 0 fine, 1 something is wrong, 2 bad input.
"""
)
def show(*, config: ConfigAtRest = None, json: Flag = False) -> int:
    """Show the certificates that are on this machine: fingerprint, addresses, end, and what is wrong with them.

    Parameters
    ----------
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.market.certificates import read_certificates

    market = _market(config)
    files = read_certificates(market)
    faults = sum(bool(file.fault) for file in files)
    if json:
        show_json(_as_json(market, files))
    else:
        rows = [
            (
                file.name,
                file.fingerprint[:_SHOWN] or "–",
                ", ".join(file.names) or "–",
                f"{file.ends:%Y-%m-%d}" if file.ends else "–",
                file.fault or "fine",
            )
            for file in files
        ]
        columns = ("certificate", "fingerprint", "for", "good until", "")
        show_table(f"Certificates in {market.keys_directory / 'tls'}", columns, rows)
        line(f"{counted(len(files), 'certificate')}, {faults or 'none'} with a fault.")
    return _WRONG if faults else 0


def certify(service: str, role: str, hosts: Sequence[str], market: Market, days: int, *, as_json: bool) -> int:
    """Make the certificate of a service beside the market, and say where it belongs."""
    from isocast.runtime.market.certificates import certify_service

    if not hosts:
        raise ConfigurationError("command line", "HOSTS", f"name the {role}'s machine, such as {role}.example")
    made = certify_service(market, service, hosts, days=days)
    pinning = _pin_renewed(market, service)
    if as_json:
        show_json({"certificate": str(made.path), "private_key": str(made.path.with_suffix(".key")), "hosts": hosts})
    else:
        for said in pinning:
            line(said)
        line(f"{made.path} is new, for {', '.join(hosts)}: copy it and its .key to the machine of the {role}.")
    return 0


def _market(config: ConfigAtRest) -> Market:
    from isocast.runtime.market.file import open_market

    return open_market(config, running=False)


def _as_json(market: Market, files: Sequence[CertificateFile]) -> dict[str, object]:
    return {
        "directory": str(market.keys_directory / "tls"),
        "certificates": [
            {
                "name": file.name,
                "made": file.made,
                "fault": file.fault,
                "fingerprint": file.fingerprint,
                "for": list(file.names),
                "good_until": file.ends.isoformat() if file.ends else None,
            }
            for file in files
        ],
    }
