"""GET /api/v1/events of the real aggregator: what is told, resumed and bounded."""

import json
import signal
import socket
import time
import unittest

from tests.integration.aggregator_support import PATIENCE, AggregatorCase, wait_for


class Watcher:
    """Reads a stream event by event."""

    def __init__(self, port, last=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        header = f"Last-Event-ID: {last}\r\n" if last is not None else ""
        self.socket.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
        self.file = self.socket.makefile("r", encoding="utf-8", newline="\n")
        self.status = int(self.file.readline().split(" ")[1])
        self.headers = {}
        for line in iter(self.file.readline, "\r\n"):
            name, value = line.strip().split(": ", 1)
            self.headers[name] = value

    def next(self, *types):
        """The next event of these types, as (type, id, data); None at the end of the stream."""
        event = {}
        for line in self.file:
            line = line.rstrip("\n")
            if line == "":
                if event.get("event") in types:
                    return event["event"], int(event["id"]) if "id" in event else None, json.loads(event["data"])
                event = {}
            elif not line.startswith(":"):
                name, value = line.split(": ", 1)
                event[name] = value
        return None

    def close(self):
        self.file.close()
        self.socket.close()


FINDINGS = ("finding_raised", "finding_updated", "finding_cleared")


class Events(AggregatorCase):
    def setUp(self):
        super().setUp()
        self.server = self.aggregator()
        self.told = self.agents(self.server)
        self.told.tell("open", "a", "lab", "h1", 1)
        self.told.wait("a", "welcome")
        self.sequence = 0

    def watch(self, last=None):
        watcher = Watcher(self.server.ports[1], last)
        self.addCleanup(watcher.close)
        return watcher

    def tell(self, state):
        self.sequence += 1
        self.told.tell("finding", "a", self.sequence, "host:h1", state)

    def of_h1(self, watcher, *types):
        """The next event about host_overloaded of h1; silence brings other findings."""
        while True:
            event = watcher.next(*(types or FINDINGS))
            if event is None or event[2]["finding"]["kind"] == "host_overloaded":
                return event

    def test_a_finding_is_told_as_it_is_raised_acknowledged_and_cleared_with_rising_ids(self):
        watcher = self.watch()
        self.assertEqual((watcher.status, watcher.headers["Content-Type"]), (200, "text/event-stream"))
        kind, first, status = watcher.next("status")
        self.assertEqual((kind, status["fabric"], status["schema"]), ("status", "lab", 1))
        self.tell("on")
        kind, raised, document = self.of_h1(watcher)
        self.assertEqual((kind, document["finding"]["subject"]), ("finding_raised", "host:h1"))
        self.assertGreater(raised, first)
        # The event says what the API says.
        own = document["finding"]["id"]
        self.assertEqual(self.server.get(f"/api/v1/findings/{own}")["finding"]["raised_at"], document["finding"]["raised_at"])
        self.server.ask(f"/api/v1/findings/{own}/ack", method="POST")
        kind, updated, document = self.of_h1(watcher)
        self.assertEqual((kind, document["finding"]["acknowledged"]), ("finding_updated", True))
        self.server.ask("/api/v1/findings/clear", method="POST")
        kind, cleared, document = self.of_h1(watcher)
        self.assertEqual((kind, document["finding"]["id"], document["finding"]["state"]), ("finding_cleared", own, "cleared"))
        self.assertLess(raised, updated)
        self.assertLess(updated, cleared)
        # Who comes back with the id of the raising is told the rest.
        self.assertEqual([self.of_h1(again)[:2] for again in [self.watch(raised)] for _ in range(2)],
                         [("finding_updated", updated), ("finding_cleared", cleared)])
        wait_for("the counter", lambda: self.server.metric("weft_http_events_total") >= 3)

    def test_after_a_restart_a_former_id_is_told_of_the_gap(self):
        watcher = self.watch()
        _, last, _ = watcher.next("status")
        self.server.kill()
        self.assertIsNone(watcher.next("none"))
        self.server.start()
        kind, identity, data = self.watch(last).next("gap")
        self.assertEqual((kind, data["last_event_id"]), ("gap", str(last)))
        self.assertGreater(identity, last)

    def test_500_watchers_are_bounded_counted_and_starve_no_request(self):
        watchers = [self.watch() for _ in range(500)]
        served = [w for w in watchers if w.status == 200]
        refused = [w for w in watchers if w.status == 503]
        self.assertEqual((len(served), len(refused)), (256, 244))
        self.assertEqual(refused[0].headers["Content-Type"], "application/problem+json")
        self.assertGreater(int(refused[0].headers["Retry-After"]), 0)
        for _ in range(20):
            begin = time.monotonic()
            self.server.get("/api/v1/status")
            self.assertLess(time.monotonic() - begin, 3)
        self.assertEqual(self.server.metric("weft_http_watchers"), 256)
        self.assertEqual(self.server.metric("weft_http_watchers_refused_total"), 244)
        self.tell("on")
        for watcher in (served[0], served[-1]):
            self.assertEqual(self.of_h1(watcher)[0], "finding_raised")
        served[0].close()
        wait_for("a free place", lambda: self.watch().status == 200)

    def test_watchers_do_not_hold_up_the_end(self):
        watchers = [self.watch() for _ in range(50)]
        watchers[0].next("status")
        self.server.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        self.assertEqual(self.server.process.wait(PATIENCE), 0)
        self.assertLess(time.monotonic() - begin, 4)
        for watcher in watchers:
            self.assertIsNone(watcher.next("none"))


if __name__ == "__main__":
    unittest.main()
