"""Commands into a running lab from another terminal: lab/exec talks to the runner, which owns the guests' channels."""

import json
import os
import socket
import threading
import time
from pathlib import Path

from lab.actions import perform_text
from lab.channel import Result
from lab.daemons import Daemons
from lab.errors import LabError, UsageError
from lab.fabric import Lab, live_runs

SOCKET = "control"
MAX_REQUEST_BYTES = 1 << 20


class ControlServer:
    """Answers one request a connection, each on a thread of its own."""

    def __init__(self, lab: Lab, daemons: Daemons | None):
        self._lab, self._daemons = lab, daemons
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(lab.run_dir / SOCKET))
        self._socket.listen(16)
        info = {
            "pid": os.getpid(),
            "started": time.time(),
            "hosts": lab.topology.hosts,
            "switches": lab.topology.switches,
            "links": [link.name for link in lab.topology.links],
            "api": daemons.url if daemons else None,
            "run_dir": str(lab.run_dir),
        }
        (lab.run_dir / "lab.json").write_text(json.dumps(info))
        threading.Thread(target=self._serve, name="lab-control", daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                request = json.loads(connection.makefile("rb").readline(MAX_REQUEST_BYTES))
                result = self._run(request)
            except (ValueError, KeyError, TypeError) as error:
                result = Result(2, err=f"bad request: {error}")
            except UsageError as error:
                result = Result(2, err=str(error))
            except LabError as error:
                result = Result(1, err=str(error))
            answer = {"rc": result.rc, "out": result.out, "err": result.err, "timed_out": result.timed_out}
            try:
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                pass  # whoever asked has gone

    def _run(self, request: dict) -> Result:
        if request["on"] == "lab":
            perform_text(self._lab, self._daemons, request["run"])
            return Result(0)
        return self._lab.exec(request["on"], request["run"], float(request["timeout"]))


def pick_run(wanted: str | None) -> tuple[Path, dict]:
    """The run folder to talk to: the one given, or the only lab that is up."""
    runs = live_runs()
    if wanted:
        runs = [entry for entry in runs if str(entry[0]) == str(Path(wanted)) or entry[0].name == wanted]
    if not runs:
        raise UsageError("no lab is up: start one with  lab/run --keep" if not wanted else f"no lab is up in {wanted}")
    if len(runs) > 1:
        raise UsageError("several labs are up, choose with --lab: " + " ".join(str(entry[0]) for entry in runs))
    return runs[0]


def request(folder: Path, on: str, command: str, timeout_s: float) -> Result:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s + 30)
        try:
            connection.connect(str(folder / SOCKET))
            connection.sendall(json.dumps({"on": on, "run": command, "timeout": timeout_s}).encode() + b"\n")
            answer = json.loads(connection.makefile("rb").readline())
        except (OSError, ValueError) as error:
            raise LabError(f"the lab in {folder} does not answer: {error}") from error
    return Result(answer["rc"], answer["out"], answer["err"], answer["timed_out"])
