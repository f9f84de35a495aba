"""Faults and cures that are no shell command: what a scenario step's `action` may be."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab.daemons import Daemons
from lab.errors import LabError, UsageError
from lab.fabric import Lab


@dataclass(frozen=True)
class Action:
    """`needs` is the parameter beside `on`: link, signal or none; `on_host` whether `on` must be a host."""

    run: Callable[[Lab, "Daemons | None", str, Mapping], None]
    needs: str = ""
    on_host: bool = False
    says: str = ""


def _link(up: bool):
    return lambda lab, daemons, on, args: lab.set_link(args["link"], up)


def _daemon(call: Callable[[Daemons, str, Mapping], None]):
    def run(lab: Lab, daemons: Daemons | None, on: str, args: Mapping) -> None:
        if daemons is None:
            raise LabError("weft does not run in this lab")
        call(daemons, on, args)

    return run


def _aggregator_restart(daemons: Daemons, on: str, args: Mapping) -> None:
    daemons.aggregator_stop()
    daemons.aggregator_start()


ACTIONS: dict[str, Action] = {
    "link_down": Action(_link(False), "link", says="switch a link off at both ends"),
    "link_up": Action(_link(True), "link", says="switch it on again"),
    "agent_stop": Action(_daemon(lambda d, on, a: d.agent_stop(on)), "", True, "SIGTERM weftd, wait for its end"),
    "agent_kill": Action(_daemon(lambda d, on, a: d.agent_stop(on, "KILL")), "", True, "SIGKILL weftd"),
    "agent_start": Action(_daemon(lambda d, on, a: d.agent_start(on)), "", True, "start weftd"),
    "agent_signal": Action(
        _daemon(lambda d, on, a: d.agent_signal(on, a["signal"])), "signal", True, "send weftd STOP, CONT, HUP, ..."
    ),
    "aggregator_stop": Action(_daemon(lambda d, on, a: d.aggregator_stop()), says="SIGTERM the aggregator"),
    "aggregator_kill": Action(_daemon(lambda d, on, a: d.aggregator_kill()), says="SIGKILL the aggregator"),
    "aggregator_start": Action(_daemon(lambda d, on, a: d.aggregator_start()), says="start the aggregator"),
    "aggregator_restart": Action(_daemon(_aggregator_restart), says="SIGTERM and start the aggregator"),
}

SIGNALS = ("STOP", "CONT", "HUP", "TERM", "KILL", "INT", "USR1", "USR2", "QUIT", "ABRT")


def perform(lab: Lab, daemons: Daemons | None, name: str, on: str, args: Mapping) -> None:
    ACTIONS[name].run(lab, daemons, on, args)


def perform_text(lab: Lab, daemons: Daemons | None, text: str) -> None:
    """`link_down h3-l2`, `agent_signal h3 STOP`, `aggregator_restart`: how a person says it."""
    words = text.split()
    action = ACTIONS.get(words[0]) if words else None
    if action is None:
        raise UsageError(f"the actions are {', '.join(ACTIONS)}")
    wanted = int(action.on_host) + int(bool(action.needs))
    if len(words) != 1 + wanted:
        usage = " ".join(filter(None, (words[0], "HOST" if action.on_host else "", action.needs.upper())))
        raise UsageError(f"usage: {usage}")
    on = words[1] if action.on_host else "lab"
    if action.on_host and on not in lab.topology.hosts:
        raise UsageError(f"{on} is no host")
    args = {action.needs: words[-1]} if action.needs else {}
    if "signal" in args and not re.fullmatch("|".join(SIGNALS), args["signal"]):
        raise UsageError(f"the signals are {', '.join(SIGNALS)}")
    perform(lab, daemons, words[0], on, args)
