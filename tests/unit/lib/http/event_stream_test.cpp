#include "lib/http/event_stream.h"

#include <sys/socket.h>

#include <array>
#include <future>
#include <thread>

#include "tests/unit/raw_client.h"

using weft::Fd;
using weft::http::EventLimits;
using weft::http::EventStream;
using weft::test::EventReader;

namespace {

using std::chrono::milliseconds;
constexpr std::chrono::seconds kDeadline{60};

std::array<Fd, 2> connected() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

struct Watched {
  explicit Watched(EventStream& events, std::optional<std::uint64_t> last = std::nullopt) {
    auto seat = events.take_seat();
    REQUIRE(seat);
    events.add(std::move(ends[1]), std::move(seat), last);
  }
  std::array<Fd, 2> ends = connected();
  EventReader reader{ends[0].get()};
  std::string until(const std::string& words) { return reader.until(words); }
};

}  // namespace

TEST_CASE("event stream: one that joins is told the state with an id, then what happens", "[http]") {
  EventStream events({}, 100);
  events.publish("old", "{}");
  events.set_state("status", R"({"a":1})");
  Watched watched(events);
  CHECK_THAT(watched.until("\r\n\r\n"), ContainsSubstring("Content-Type: text/event-stream\r\n"));
  CHECK(watched.until("}\n\n") == "retry: 2000\n\nid: 100\nevent: status\ndata: {\"a\":1}\n\n");
  events.publish("news", "{\"b\":\n2}\n");
  CHECK(watched.until("}\n\n") == "id: 101\nevent: news\ndata: {\"b\":\ndata: 2}\n\n");
  events.set_state("status", R"({"a":2})");
  CHECK(watched.until("}\n\n") == "event: status\ndata: {\"a\":2}\n\n");
  CHECK(events.published() == 2);
}

TEST_CASE("event stream: one that comes back is told what it missed, or that there is a gap", "[http]") {
  EventLimits limits;
  limits.kept = 3;
  EventStream events(limits, 10);
  for (const char* type : {"a", "b", "c", "d"}) events.publish(type, "{}");  // 10 is no longer kept
  Watched missed_two(events, 11);
  CHECK_THAT(missed_two.until("event: c"), !ContainsSubstring("event: b"));
  missed_two.until("id: 13\nevent: d");
  Watched all_kept(events, 10);
  CHECK_THAT(all_kept.until("event: d"), ContainsSubstring("id: 11\nevent: b"));
  Watched missed_none(events, 13);
  events.publish("e", "{}");
  CHECK_THAT(missed_none.until("event: e"), !ContainsSubstring("event: d"));
  // Too old; of a process before; of one whose clock was ahead.
  for (const std::uint64_t last : {9UL, 0UL, ~0UL, 99UL}) {
    CAPTURE(last);
    Watched late(events, last);
    CHECK_THAT(late.until("\"}\n\n"), ContainsSubstring("id: 14\nevent: gap\n"));
  }
}

TEST_CASE("event stream: what is kept is bounded by its size", "[http]") {
  EventLimits limits;
  limits.kept_bytes = 1000;
  EventStream events(limits, 1);
  for (int i = 0; i < 5; ++i) events.publish("large", std::string(400, 'x'));
  Watched late(events, 1);
  late.until("event: gap");
  Watched early(events, 4);
  early.until("id: 5\nevent: large");
}

TEST_CASE("event stream: in silence a comment shows that it is alive", "[http]") {
  EventLimits limits;
  limits.heartbeat = milliseconds(1);
  EventStream events(limits, 1);
  Watched watched(events);
  watched.until("\n:\n\n:\n\n");
}

TEST_CASE("event stream: one that takes nothing is cut and counted, and others are told all", "[http]") {
  EventLimits limits;
  limits.stall = milliseconds(100);
  limits.kept = 10'000;
  EventStream events(limits, 1);
  Watched slow(events), good(events);
  for (int i = 0; i < 100; ++i) {
    events.publish("large", std::string(64 * 1024, 'x'));
    good.until("event: large");
  }
  while (events.watchers() > 1) std::this_thread::yield();  // it is cut first, and then leaves its seat
  CHECK(events.watchers() == 1);
  CHECK(events.cut() == 1);
  CHECK(slow.reader.ends());
  events.publish("last", "{}");
  good.until("event: last");
}

TEST_CASE("event stream: one that falls behind what is kept is cut, however it dawdles", "[http]") {
  EventLimits limits;
  limits.kept = 2;
  limits.stall = std::chrono::minutes(10);
  EventStream events(limits, 1);
  Watched slow(events);
  for (int i = 0; i < 200; ++i) events.publish("large", std::string(64 * 1024, 'x'));
  CHECK(slow.reader.ends());
  while (events.watchers() != 0) std::this_thread::yield();
  CHECK(events.cut() == 1);
}

TEST_CASE("event stream: 500 that want to watch get the places there are, and the rest is refused", "[http]") {
  EventStream events({}, 1);
  std::vector<std::unique_ptr<Watched>> watching;
  for (int i = 0; i < 256; ++i) watching.push_back(std::make_unique<Watched>(events));
  for (int i = 256; i < 500; ++i) CHECK(events.take_seat() == nullptr);
  CHECK(events.refused() == 244);
  events.publish("news", "{}");
  for (auto& one : watching) one->until("event: news");
  watching.pop_back();
  while (events.watchers() != 255) std::this_thread::yield();
  CHECK(events.take_seat() != nullptr);
}

TEST_CASE("event stream: it stops at once, whoever watches and takes nothing", "[http]") {
  auto events = std::make_unique<EventStream>(EventLimits{}, 1);
  Watched quiet(*events), slow(*events);
  for (int i = 0; i < 100; ++i) events->publish("large", std::string(32 * 1024, 'x'));
  auto stopped = std::async(std::launch::async, [&] { events->stop(); });
  REQUIRE(stopped.wait_for(kDeadline) == std::future_status::ready);
  CHECK(quiet.reader.ends());
  CHECK(events->watchers() == 0);
}
