"""Network round trip by weft ping over that by ib_send_lat, interleaved on one lab boot.

ib_send_lat prints half of a round trip, so it counts twice. Both use UD, events instead of polling, and the same hosts.
Emulated guests fall asleep between packets and take long to wake, so a round trip depends on the pace. Two rows are at
one pace: ib_send_lat waits for a gap before each send, which is in what it prints and is taken off, and weft ping then
goes at the pace that came out. The third is ib_send_lat as it is, sending again as soon as it was answered, which
keeps the guests awake; weft ping cannot go faster than a packet each 2 ms there without packets that queue.
"""

import json
import pathlib
import re

from tests.bench.common import Unmeasurable, median, program

ROUNDS, QUICK_ROUNDS = 10, 3
PACKETS = 200
FROM, TO = "h1", "h3"
GAP_US, CALM_GAP_US = 2000, 20000
BACK_TO_BACK_PACE_US = 2000


def ib_send_lat(lab, address: str, port: int, gap_us: int = 0) -> float:
    """Median time from one send to the next in microseconds: the gap and a round trip."""
    command = f"timeout 60 ib_send_lat -c UD -e -d rxe0 -x 1 -s 128 -n {PACKETS} -p {port}"
    server = lab.submit(TO, command, timeout=70)
    gap = f" --latency_gap={gap_us}" if gap_us else ""
    client = None
    for _ in range(20):  # the server takes a moment to listen
        client = lab.exec(FROM, f"{command}{gap} {address}", timeout=70)
        if client.ok:
            break
    server.result()
    found = re.search(r"^\s*128\s+\d+\s+\S+\s+\S+\s+(\S+)", client.out, re.MULTILINE)
    if not client.ok or not found:
        raise Unmeasurable(f"ib_send_lat failed: {client.err[-500:]}{client.out[-500:]}")
    return 2 * float(found.group(1))


def weft_ping(lab, weft: pathlib.Path, address: str, pace_us: float) -> float:
    command = f"{weft} ping {address} -c {PACKETS} -i {round(pace_us)}us --size 128 --ports 1 --json"
    done = lab.exec(FROM, command, timeout=120)
    try:
        document = json.loads(done.out)
        return document["hosts"][0]["network_rtt_ns"]["median"] / 1000
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise Unmeasurable(f"weft ping failed ({error}): {done.err[-500:]}{done.out[-500:]}") from error


def compare(lab, weft: pathlib.Path, address: str, port: int, gap_us: int) -> dict:
    period = ib_send_lat(lab, address, port, gap_us)
    ours = weft_ping(lab, weft, address, period if gap_us else BACK_TO_BACK_PACE_US)
    theirs = period - gap_us
    return {"ib_send_lat_us": round(theirs, 1), "weft_ping_us": round(ours, 1), "ratio": round(ours / theirs, 3)}


def measure(build: pathlib.Path, quick: bool) -> dict:
    from lab.fabric import Lab
    from lab.topology import Topology
    weft = program(build, "weft").resolve()
    paces = {"ratio": GAP_US, "ratio_calm": CALM_GAP_US, "ratio_back_to_back": 0}
    rounds = {name: [] for name in paces}
    with Lab(Topology(4, 2, 2)) as lab:
        address = lab.topology.address_of(TO)
        responder = lab.submit(TO, f"timeout 3000 {weft} responder", timeout=3100)
        port = 18515
        for _ in range(QUICK_ROUNDS if quick else ROUNDS):
            for name, gap_us in paces.items():
                rounds[name].append(compare(lab, weft, address, port, gap_us))
                port += 1
        responder.cancel()
    medians = {f"{name}_median": round(median([row["ratio"] for row in rows]), 3) for name, rows in rounds.items()}
    return {**medians, "rounds": rounds}
