#include "agent/daemon/trace_relay.h"

#include <chrono>
#include <future>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::agent;

namespace {

constexpr auto kPatience = std::chrono::seconds(20);

// Answers when it is let.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  unsigned rounds = 0;
  std::vector<probes::TraceRequest> asked;

  void pass() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return open; });
    ++rounds;
  }
  void set(bool now_open) {
    {
      std::lock_guard lock(mutex);
      open = now_open;
    }
    changed.notify_all();
  }
};

struct SlowTracer final : TraceSource {
  explicit SlowTracer(Gate& gate) : gate_(gate) {}
  void set_requests(const std::vector<probes::TraceRequest>& requests) override { gate_.asked = requests; }
  std::vector<model::PathTrace> take_traces() override {
    gate_.pass();
    model::PathTrace trace;
    trace.from = "h1/rxe0";
    trace.source_port = static_cast<std::uint16_t>(gate_.rounds);
    return {trace};
  }
  std::string problem() override { return "problem " + std::to_string(gate_.rounds); }
  probes::TraceStats stats() override {
    probes::TraceStats out;
    out.sent = gate_.rounds;
    return out;
  }
  Gate& gate_;
};

}  // namespace

TEST_CASE("trace relay: a tracer that does not answer holds up nobody, and what it had is not lost", "[agent]") {
  Gate gate;
  TraceRelay relay(std::make_unique<SlowTracer>(gate));
  gate.set(false);
  auto asked = std::async(std::launch::async, [&] {
    relay.set_requests({probes::TraceRequest{}});
    return relay.take_traces().size() + relay.take_traces().size();
  });
  const bool came_back = asked.wait_for(kPatience) == std::future_status::ready;
  gate.set(true);
  CHECK(came_back);
  std::size_t traces = asked.get();
  CHECK(traces == 0);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (traces == 0 && std::chrono::steady_clock::now() < deadline) traces += relay.take_traces().size();
  CHECK(traces >= 1);
}

TEST_CASE("trace relay: a tracer that answers is asked once a call, with the requests given before", "[agent]") {
  Gate gate;
  {
    TraceRelay relay(std::make_unique<SlowTracer>(gate));
    CHECK(relay.problem().empty());
    relay.set_requests({probes::TraceRequest{}, probes::TraceRequest{}});
    std::size_t traces = 0;
    for (int i = 0; i < 3; ++i) traces += relay.take_traces().size();
    // On a machine so busy that a round took a tenth of a second its traces come with the next one.
    CHECK(traces <= 3);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (relay.problem().empty() && std::chrono::steady_clock::now() < deadline) relay.take_traces();
    CHECK_THAT(relay.problem(), ContainsSubstring("problem "));
    CHECK(relay.stats().sent >= 1);
  }
  CHECK(gate.asked.size() == 2);
}
