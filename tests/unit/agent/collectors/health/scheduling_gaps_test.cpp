#include "agent/collectors/health/scheduling_gaps.h"

#include <cerrno>

#include "agent/collectors/health/cpu_pressure.h"
#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::health;

namespace {

// Beats on time from `now` for a while; returns the time of the last one.
Nanos beat_on_time(GapFold& fold, Nanos due, int count) {
  for (int i = 0; i < count; ++i) due = fold.beat(due);
  return due;
}

}  // namespace

TEST_CASE("a CPU hog that starves the heartbeat shows its whole length", "[health]") {
  GapFold fold(0);
  Nanos due = beat_on_time(fold, kBeat_ns, 10);
  due = fold.beat(due + 300 * kMillisecond);
  due = beat_on_time(fold, due, 10);
  const auto health = fold.take(due - kBeat_ns);
  CHECK(health.max_gap_ns == 300 * kMillisecond);
  CHECK(health.total_gap_ns == 300 * kMillisecond);
}

TEST_CASE("who asks while the heartbeat still starves sees the gap so far, and the rest once", "[health]") {
  GapFold fold(0);
  const Nanos due = beat_on_time(fold, kBeat_ns, 1);
  const auto first = fold.take(due + 400 * kMillisecond);
  CHECK(first.max_gap_ns == 400 * kMillisecond);
  CHECK(first.total_gap_ns == 400 * kMillisecond);
  fold.beat(due + 700 * kMillisecond);
  const auto second = fold.take(due + 701 * kMillisecond);
  CHECK(second.max_gap_ns == 700 * kMillisecond);
  CHECK(second.total_gap_ns == 300 * kMillisecond);
  CHECK(second.window_ns == 301 * kMillisecond);
}

TEST_CASE("repeated short bursts add up", "[health]") {
  GapFold fold(0);
  Nanos due = kBeat_ns;
  for (int i = 0; i < 5; ++i) due = fold.beat(due + 60 * kMillisecond);
  const auto health = fold.take(due - kBeat_ns);
  CHECK(health.max_gap_ns == 60 * kMillisecond);
  CHECK(health.total_gap_ns == 300 * kMillisecond);
}

TEST_CASE("ordinary jitter is no gap in the sum", "[health]") {
  GapFold fold(0);
  Nanos due = kBeat_ns;
  for (int i = 0; i < 50; ++i) due = fold.beat(due + 3 * kMillisecond);
  const auto health = fold.take(due - kBeat_ns);
  CHECK(health.max_gap_ns == 3 * kMillisecond);
  CHECK(health.total_gap_ns == 0);
}

TEST_CASE("an undisturbed window is empty of gaps and has its length", "[health]") {
  GapFold fold(0);
  const Nanos due = beat_on_time(fold, kBeat_ns, 100);
  const auto health = fold.take(due - kBeat_ns);
  CHECK(health.max_gap_ns == 0);
  CHECK(health.window_ns == kSecond);
  CHECK_FALSE(health.responder_low_water);
}

TEST_CASE("after a while on time the heart beats half as often, and one late beat brings the finer grain back",
          "[health]") {
  GapFold fold(0);
  const auto beats_in = [&](Nanos& due, Nanos length, Nanos late) {
    int count = 0;
    for (const Nanos end = due + length; due < end; ++count) due = fold.beat(due + late);
    return count;
  };
  Nanos due = kBeat_ns;
  (void)beats_in(due, kCalmAfter_ns, kMillisecond);
  CHECK(beats_in(due, kSecond, 0) == kSecond / kCalmBeat_ns);
  due = fold.beat(due + kCalmLateness_ns + 1);
  CHECK(beats_in(due, kSecond, 0) == kSecond / kBeat_ns);
  CHECK(beats_in(due, kCalmAfter_ns, 0) > kCalmAfter_ns / kCalmBeat_ns);
  CHECK(beats_in(due, kSecond, 0) == kSecond / kCalmBeat_ns);
}

TEST_CASE("bursts that repeat are told alike whether calm went before or not", "[health]") {
  // 60 ms of each 205 are taken from us; a beat that falls due meanwhile runs when they end.
  const auto third_second = [](Nanos first_burst) {
    GapFold fold(0);
    Nanos now = kBeat_ns;
    const auto beat_until = [&](Nanos end) {
      while (now < end) {
        const Nanos into = (now - first_burst) % (205 * kMillisecond);
        if (now >= first_burst && into < 60 * kMillisecond) now += 60 * kMillisecond - into;
        now = fold.beat(now);
      }
    };
    beat_until(first_burst + 2 * kSecond);
    (void)fold.take(first_burst + 2 * kSecond);
    beat_until(first_burst + 3 * kSecond);
    return fold.take(first_burst + 3 * kSecond);
  };
  const auto early = third_second(kSecond + 3 * kMillisecond);
  const auto calm = third_second(3 * kCalmAfter_ns + 3 * kMillisecond);
  CHECK(early.max_gap_ns >= 50 * kMillisecond);
  CHECK(calm.max_gap_ns >= 50 * kMillisecond);
  CHECK(calm.total_gap_ns >= 4 * 50 * kMillisecond);
}

TEST_CASE("pressure text in another form is malformed, never 0", "[health]") {
  for (const char* text : {"", "some", "some avg10=", "some avg10=x", "full avg10=1.00", "some avg10=-1.0 avg60=0",
                           "some avg10=101 avg60=0", "some avg10=nan avg60=0", "some avg10=1.2x avg60=0"})
    CHECK_FALSE(parse_cpu_pressure(text));
}

TEST_CASE("pressure is a ratio", "[health]") {
  CHECK(*parse_cpu_pressure("some avg10=98.65 avg60=98.45 avg300=85.47 total=1\n") == Approx(0.9865));
  CHECK(*parse_cpu_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n") == 0);
}

TEST_CASE("a kernel without PSI, or with it off, is unsupported; a refusal is an error", "[health]") {
  FailingFiles files;
  files.failures["/none/pressure/cpu"] = EOPNOTSUPP;
  CHECK(read_cpu_pressure(files, "/none").error().kind == Error::Kind::Unsupported);
  CHECK(read_cpu_pressure(SystemFiles{}, "/none").error().kind == Error::Kind::Unsupported);
  files.failures["/none/pressure/cpu"] = EACCES;
  CHECK(read_cpu_pressure(files, "/none").error().kind == Error::Kind::Permission);
}

TEST_CASE("the monitor starts, tells its window and stops", "[health]") {
  const SystemClock clock;
  const SystemFiles files;
  HealthMonitor monitor(clock, files, "/none");
  const auto health = monitor.take_window();
  CHECK(health.window_ns > 0);
  CHECK_FALSE(health.cpu_pressure_some);
}
