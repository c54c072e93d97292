"""Commands to a lab that runs, by its control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.lab_view import show_lab, show_links, show_nodes
from isocast.cli.render import line, show_json, show_table
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import parse_duration

__all__ = ["Flag", "Words", "app", "parse_option"]

app = App(
    name="lab",
    help="A world on one machine: a network namespace for each city, with delay, jitter and loss between them.",
    help_epilogue="""Start with:

    isocast lab check

    isocast lab up --config market.toml --loss 0.01 --seconds 60
""",
)

Flag: TypeAlias = Annotated[bool, Parameter(negative="")]
Words: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
_Share: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
_Run: TypeAlias = Annotated[
    Path | None, Parameter(help="The directory of the lab, if not the one that a lab takes by itself.")
]


def parse_option(text: str | None, option: str) -> int | None:
    """Nanoseconds of an option such as ``2ms``."""
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        rule = f'must be a time with its unit, such as 2ms, not "{text}"'
        raise ConfigurationError("command line", option, rule) from error


def _ask(run: Path | None, command: str, **parts: object) -> Any:  # noqa: ANN401  # JSON
    from isocast.trials.lab.control import ask_lab
    from isocast.trials.lab.run_directory import default_run_directory

    return ask_lab(run or default_run_directory(), command, **parts)


# ---- how is it?


@app.command(
    help_epilogue="""Examples:

    isocast lab status

    isocast lab status --links --json
"""
)
def status(*, links: Flag = False, run: _Run = None, json: Flag = False) -> int:
    """Show the sites and nodes of a running lab.

    Parameters
    ----------
    links
        Show every direction between two sites too.
    json
        Print one JSON object instead of tables.
    """
    state = _ask(run, "status", links=links)
    if json:
        show_json(state)
        return 0
    sites = [(site["name"], site["city"] or "–", ", ".join(site["addresses"])) for site in state["sites"]]
    show_table(f"Sites, since {state['seconds']:.0f} s", ("name", "city", "addresses"), sites)
    if state["nodes"]:
        show_nodes(state["nodes"])
    if links:
        show_links(state["links"])
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast lab lateness

    isocast lab lateness --reset --json
"""
)
def lateness(*, reset: Flag = False, run: _Run = None, json: Flag = False) -> int:
    """Show how late the lab itself was, so that it is not blamed on what runs inside.

    Parameters
    ----------
    reset
        Begin the lateness anew after this.
    json
        Print one JSON object instead of a table.
    """
    report = _ask(run, "lateness", reset=reset)
    if json:
        show_json(report)
    else:
        show_lab(report)
    return 0


# ---- links


@app.command(
    help_epilogue="""Examples:

    isocast lab cut london tokyo

    isocast lab cut london tokyo --one-way
"""
)
def cut(here: str, there: str, /, *, one_way: Flag = False, run: _Run = None) -> int:
    """Cut a link: nothing passes any more; what is on its way arrives.

    Parameters
    ----------
    here
        A site, its city, or a node at it.
    there
        Another one.
    one_way
        Only from the first to the second.
    """
    _ask(run, "cut", here=here, there=there, one_way=one_way)
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast lab heal london tokyo

    isocast lab heal --all
"""
)
def heal(
    here: str | None = None,
    there: str | None = None,
    /,
    *,
    one_way: Flag = False,
    all_links: Annotated[bool, Parameter(name="--all", negative="")] = False,
    run: _Run = None,
) -> int:
    """Let frames pass again where a link was cut.

    Parameters
    ----------
    here
        A site, its city, or a node at it.
    there
        Another one.
    one_way
        Only from the first to the second.
    all_links
        Everywhere.
    """
    if all_links == (here is not None) or (here is None) != (there is None):
        raise ConfigurationError("command line", "isocast lab heal", "needs two sites, or --all")
    _ask(run, "heal", here=here or "", there=there or "", one_way=one_way, all=all_links)
    return 0


@app.command(
    name="set",
    help_epilogue="""Examples:

    isocast lab set london tokyo --loss 0.05

    isocast lab set london tokyo --delay 120ms --jitter 5ms --one-way
""",
)
def set_link(
    here: str,
    there: str,
    /,
    *,
    delay: str | None = None,
    jitter: str | None = None,
    loss: _Share | None = None,
    one_way: Flag = False,
    run: _Run = None,
) -> int:
    """Change what a link does to frames that are sent from now on.

    Parameters
    ----------
    here
        A site, its city, or a node at it.
    there
        Another one.
    delay
        How long a frame takes, such as 120ms.
    jitter
        Mean of an exponential delay on top.
    loss
        Share of the frames that are lost.
    one_way
        Only from the first to the second.
    """
    delay_ns, jitter_ns = parse_option(delay, "--delay"), parse_option(jitter, "--jitter")
    if delay_ns is None and jitter_ns is None and loss is None:
        raise ConfigurationError("command line", "isocast lab set", "needs --delay, --jitter or --loss")
    _ask(run, "change", here=here, there=there, delay_ns=delay_ns, jitter_ns=jitter_ns, loss=loss, one_way=one_way)
    return 0


# ---- nodes


def _add_node_command(name: str, purpose: str) -> None:
    """A command that asks the lab to do to a node what its name says."""

    def command(node: str, /, *, run: _Run = None) -> int:
        _ask(run, name, node=node)
        return 0

    command.__doc__ = f"{purpose}\n\nParameters\n----------\nnode\n    Its name.\n"
    app.command(command, name=name, help_epilogue=f"Example:\n\n    isocast lab {name} london\n")


_add_node_command("kill", "Kill a node by SIGKILL: it has no chance to tidy up.")
_add_node_command("start", "Start a node again that was killed, or ended.")
_add_node_command("stop", "Stop a node by SIGSTOP: nothing happens in it until `isocast lab continue`.")
_add_node_command("continue", "Let a stopped node go on.")


# ---- inside, and the end


@app.command(
    name="exec",
    help_epilogue="""Examples:

    isocast lab exec london -- ping -c 3 10.77.1.1

    isocast lab exec london -- tcpdump -ni wan0

Exit code: that of COMMAND.
""",
)
def execute(site: str, /, *command: Words, run: _Run = None) -> int:
    """Run COMMAND at a site of a running lab, as if one sat there.

    Parameters
    ----------
    site
        A site, its city, or a node at it.
    command
        What to run, after `--`.
    """
    import os
    import sys

    if not command:
        raise ConfigurationError("command line", "COMMAND", "is missing: what shall run there?")
    prefix: list[str] = _ask(run, "enter", site=site)
    sys.stdout.flush()
    os.execv(prefix[0], [*prefix, *command])  # noqa: S606  # the user's own command, without a shell


@app.command(help_epilogue="Example:\n\n    isocast lab down\n")
def down(*, run: _Run = None) -> int:
    """End a running lab: its nodes are asked to end, its namespaces vanish, and it gives its report."""
    _ask(run, "down")
    line("The lab is ending.")
    return 0
