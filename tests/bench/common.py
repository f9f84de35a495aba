"""What the benchmarks share: finding programs, and figures over samples."""

import pathlib
import statistics


class Unmeasurable(Exception):
    """The figure cannot be taken here; the message says why and what to do."""


def program(build: pathlib.Path, name: str) -> pathlib.Path:
    for place in ("agent/daemon", "aggregator", "cli", "."):
        path = build / place / name
        if path.is_file():
            return path
    raise Unmeasurable(f"{build} has no {name}: build first (ninja -C {build})")


def percentile(samples: list, share: float) -> float:
    """The smallest sample that at least this share of them does not exceed."""
    ordered = sorted(samples)
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


def median(samples: list) -> float:
    return statistics.median(samples)
