"""What the commands of a lab print for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from isocast.cli.render import figure, line, show_table

if TYPE_CHECKING:
    from isocast.trials.lab.session import SessionReport

__all__ = ["one_line", "show_lab", "show_links", "show_nodes"]

_EPISODES_SHOWN = 10


def show_nodes(nodes: Sequence[Mapping[str, Any]]) -> None:
    """A row for each node."""
    rows = [
        (
            node["name"],
            node["site"],
            node["state"],
            str(node["process"] or "–"),
            figure(node["starts"]),
            figure(node["exit_code"]),
        )
        for node in nodes
    ]
    show_table("Nodes", ("name", "site", "state", "process", "starts", "exit code"), rows)


def show_links(links: Sequence[Mapping[str, Any]]) -> None:
    """A row for each direction."""
    from isocast.trials.lab.report import short_time

    rows = [
        (
            f"{link['here']} → {link['there']}",
            "CUT" if link["cut"] else short_time(link["delay_ns"]),
            short_time(link["jitter_ns"]),
            figure(link["loss"]),
            figure(link["frames_taken"]),
            figure(link["frames_lost"]),
            figure(link["frames_cut"]),
        )
        for link in links
    ]
    show_table("Links", ("", "delay", "jitter", "loss", "frames", "lost", "cut"), rows)


def show_lab(parts: Mapping[str, Any]) -> None:
    """The lab's own account, and a plain word when it was at fault."""
    from isocast.trials.lab.report import LabReport, report_rows, short_time

    report = LabReport.from_json(parts)
    show_table("The lab itself", ("", "value"), report_rows(report))
    if not report.at_fault:
        line("The lab was punctual: what was late inside it was late by itself.")
        return
    line("The lab itself was late, or dropped frames: compare its times before you blame what ran inside.")
    for episode in report.episodes[-_EPISODES_SHOWN:]:
        began = datetime.fromtimestamp(episode.from_ns / 1e9, UTC).isoformat(timespec="milliseconds")
        lasted = short_time(episode.to_ns - episode.from_ns)
        line(f"  {began} for {lasted}: {figure(episode.count)} times, by up to {short_time(episode.worst_ns)}")
    if len(report.episodes) > _EPISODES_SHOWN:
        line(f"  … and {len(report.episodes) - _EPISODES_SHOWN} before (--json lists all)")


def one_line(report: SessionReport) -> str:
    """What a command in the foreground leaves room for."""
    from isocast.trials.lab.report import report_rows

    return "; ".join(f"{name} {value}" for name, value in report_rows(report.lab)[1:6])
