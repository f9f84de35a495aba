"""Network round trip by weft ping over that by ib_send_lat, interleaved on one lab boot.

ib_send_lat prints half of a round trip, so it counts twice. Both use UD, events instead of polling, and the same hosts.
It sends again as soon as it was answered, so weft ping goes at about that pace beside it; and once more at a pace of
its own, where the hosts fall asleep between two probes.
"""

import json
import pathlib
import re

from tests.bench.common import Unmeasurable, median, program

ROUNDS, QUICK_ROUNDS = 10, 3
PACKETS = 200
FROM, TO = "h1", "h3"
PACE, CALM_PACE = "2ms", "20ms"


def ib_send_lat(lab, address: str, port: int) -> float:
    """Median round trip in microseconds."""
    command = f"timeout 60 ib_send_lat -c UD -e -d rxe0 -x 1 -s 128 -n {PACKETS} -p {port}"
    server = lab.submit(TO, command, timeout=70)
    client = None
    for _ in range(20):  # the server takes a moment to listen
        client = lab.exec(FROM, f"{command} {address}", timeout=70)
        if client.ok:
            break
    server.result()
    found = re.search(r"^\s*128\s+\d+\s+\S+\s+\S+\s+(\S+)", client.out, re.MULTILINE)
    if not client.ok or not found:
        raise Unmeasurable(f"ib_send_lat failed: {client.err[-500:]}{client.out[-500:]}")
    return 2 * float(found.group(1))


def weft_ping(lab, weft: pathlib.Path, address: str, pace: str) -> float:
    done = lab.exec(FROM, f"{weft} ping {address} -c {PACKETS} -i {pace} --size 128 --ports 1 --json", timeout=120)
    try:
        document = json.loads(done.out)
        return document["hosts"][0]["network_rtt_ns"]["median"] / 1000
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise Unmeasurable(f"weft ping failed ({error}): {done.err[-500:]}{done.out[-500:]}") from error


def measure(build: pathlib.Path, quick: bool) -> dict:
    from lab.fabric import Lab
    from lab.topology import Topology
    weft = program(build, "weft").resolve()
    with Lab(Topology(4, 2, 2)) as lab:
        address = lab.topology.address_of(TO)
        responder = lab.submit(TO, f"timeout 3000 {weft} responder", timeout=3100)
        rows = []
        for number in range(QUICK_ROUNDS if quick else ROUNDS):
            theirs = ib_send_lat(lab, address, 18515 + number)
            ours = weft_ping(lab, weft, address, PACE)
            calm = weft_ping(lab, weft, address, CALM_PACE)
            rows.append({"ib_send_lat_us": round(theirs, 1), "weft_ping_us": round(ours, 1),
                         "weft_ping_calm_us": round(calm, 1), "ratio": round(ours / theirs, 3),
                         "ratio_calm": round(calm / theirs, 3)})
        responder.cancel()
    return {"ratio_median": round(median([row["ratio"] for row in rows]), 3),
            "ratio_calm_median": round(median([row["ratio_calm"] for row in rows]), 3), "rounds": rows}
