"""Did the builder starve the whole lab? A time in which every guest stood still at once proves nothing about weft."""

import threading
from collections.abc import Sequence

from lab.channel import Gap

STALL_S = 1.0  # twice the probe timeout: shorter pauses must not upset the product
SLACK_S = 0.3  # arrival times of the guests' reports differ by their own delivery
KEPT = 10_000


class StallMonitor:
    """Collects the guests' gaps. Thread-safe."""

    def __init__(self, guests: Sequence[str]):
        self._guests = tuple(guests)
        self._gaps: list[Gap] = []
        self._lock = threading.Lock()

    def add(self, gap: Gap) -> None:
        with self._lock:
            self._gaps.append(gap)
            del self._gaps[:-KEPT]

    def longest(self, since: float, until: float) -> dict[str, float]:
        """The longest gap of each guest that had one, seconds."""
        worst: dict[str, float] = {}
        for gap in self._between(since, until):
            worst[gap.guest] = round(max(worst.get(gap.guest, 0.0), gap.end - gap.start), 2)
        return worst

    def together(self, since: float, until: float) -> float:
        """Seconds of the longest stall of at least STALL_S that all guests shared, 0 when there was none."""
        gaps = [g for g in self._between(since, until) if g.end - g.start >= STALL_S]
        worst = 0.0
        for anchor in gaps:
            sharing = [g for g in gaps if g.start <= anchor.end + SLACK_S and g.end >= anchor.start - SLACK_S]
            if {g.guest for g in sharing} == set(self._guests):
                worst = max(worst, min(g.end - g.start for g in sharing))
        return worst

    def _between(self, since: float, until: float) -> list[Gap]:
        with self._lock:
            return [g for g in self._gaps if g.end >= since and g.start <= until]
