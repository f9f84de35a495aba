#include "agent/daemon/stream_session.h"

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::agent;

namespace {

// What happened on the fake wire, over all attempts.
struct Wire {
  std::vector<wire::Hello> hellos;
  std::vector<wire::Batch> batches;
  std::vector<wire::Goodbye> goodbyes;
  int open_links = 0;
};

class FakeLink final : public StreamLink {
 public:
  explicit FakeLink(Wire& wire) : wire_(wire) { ++wire_.open_links; }
  ~FakeLink() override { --wire_.open_links; }
  void open(const std::string&, const wire::Hello& hello) override { wire_.hellos.push_back(hello); }
  void send(const wire::Batch& batch) override { wire_.batches.push_back(batch); }
  void send_goodbye(const wire::Goodbye& goodbye) override { wire_.goodbyes.push_back(goodbye); }

 private:
  Wire& wire_;
};

struct Rig {
  FakeClock clock;
  Wire wire;
  Outbox outbox{OutboxLimits{}, [](std::uint64_t count) { return "gap " + std::to_string(count); }};
  MemoryStore store{4, 1 << 20};
  double random = 1.0 - 1e-9;
  int connected = 0;
  std::vector<model::ProbePlan> plans;
  std::uint64_t attempt = 0;
  StreamSession session{options(),
                        [this](std::uint64_t number) {
                          attempt = number;
                          return std::make_unique<FakeLink>(wire);
                        },
                        outbox,
                        store,
                        clock,
                        [this] { return random; },
                        {[this] { ++connected; }, [this](model::ProbePlan plan) { plans.push_back(std::move(plan)); }}};

  static StreamOptions options() {
    StreamOptions out;
    out.hello.agent = "h1";
    out.hello.epoch = 7;
    return out;
  }
  void event(LinkEvent what) { session.on_event(attempt, std::move(what)); }
  void connect(std::uint64_t last_stored = 0) {
    session.set_address("aggregator:1");
    welcome(last_stored);
  }
  void welcome(std::uint64_t last_stored) {
    event(LinkOpened{});
    event(wire::Welcome{last_stored, 0, ""});
    REQUIRE(session.state() == StreamState::Connected);
  }
  void push(const std::string& bytes) {
    outbox.push({RecordClass::Sample, "", bytes});
    session.tick();
  }
  Nanos backoff_ns() const { return session.next_wake_ns() - clock.monotonic_ns(); }
  void wait_out_backoff() {
    REQUIRE(session.state() == StreamState::Backoff);
    clock.advance(backoff_ns());
    session.tick();
    REQUIRE(session.state() == StreamState::Connecting);
  }
};

}  // namespace

TEST_CASE("stream: without an address it stays inactive and the outbox keeps everything", "[agent]") {
  Rig rig;
  rig.push("a");
  CHECK(rig.session.state() == StreamState::Inactive);
  CHECK(rig.outbox.size() == 1);
  CHECK(rig.wire.hellos.empty());
}

TEST_CASE("stream: a connection that does not come up within its deadline is given up (rpingmesh PR 12)", "[agent]") {
  test::expect_log("not connected to the aggregator");
  Rig rig;
  rig.session.set_address("aggregator:1");
  CHECK(rig.session.state() == StreamState::Connecting);
  rig.clock.advance(5 * kSecond);
  rig.session.tick();
  CHECK(rig.session.state() == StreamState::Backoff);
  CHECK(rig.wire.open_links == 0);
}

TEST_CASE("stream: a hello without a Welcome within its deadline is given up, and the step is named (perftest PR 381)",
          "[agent]") {
  test::expect_log("no Welcome within the deadline");
  Rig rig;
  rig.session.set_address("aggregator:1");
  rig.event(LinkOpened{});
  CHECK(rig.session.state() == StreamState::Handshake);
  rig.clock.advance(5 * kSecond);
  rig.session.tick();
  CHECK(rig.session.state() == StreamState::Backoff);
}

TEST_CASE("stream: back-off doubles to its cap under full jitter and is logged once", "[agent]") {
  test::expect_log("not connected to the aggregator");
  Rig rig;
  rig.session.set_address("aggregator:1");
  std::vector<Nanos> waits;
  for (int i = 0; i < 8; ++i) {
    rig.event(LinkClosed{"refused"});
    waits.push_back((rig.backoff_ns() + kMillisecond / 2) / kMillisecond);
    rig.wait_out_backoff();
  }
  CHECK(waits == std::vector<Nanos>{200, 400, 800, 1600, 3200, 6400, 10'000, 10'000});
  CHECK(test::logged().size() == 1);
  rig.random = 0;
  rig.event(LinkClosed{"refused"});
  CHECK(rig.backoff_ns() == 0);
}

TEST_CASE("stream: only a session that lived a while forgets earlier failures", "[agent]") {
  test::expect_log("not connected to the aggregator");
  Rig rig;
  rig.session.set_address("aggregator:1");
  for (int i = 0; i < 4; ++i) {
    rig.event(LinkClosed{"refused"});
    rig.wait_out_backoff();
  }
  rig.welcome(0);
  rig.clock.advance(kSecond);
  rig.event(LinkClosed{"reset"});
  CHECK(rig.backoff_ns() > 3 * kSecond);  // welcomed, then thrown out at once: not healthy
  rig.wait_out_backoff();
  rig.welcome(0);
  rig.clock.advance(11 * kSecond);
  rig.event(LinkClosed{"restart"});
  CHECK(rig.backoff_ns() <= 200 * kMillisecond);
}

TEST_CASE("stream: the aggregator's hint spreads the first reconnect, within reason", "[agent]") {
  test::expect_log("not connected to the aggregator");
  Rig rig;
  rig.session.set_address("aggregator:1");
  rig.event(wire::Welcome{0, 20 * kSecond, ""});
  rig.clock.advance(20 * kSecond);
  rig.event(LinkClosed{"restart"});
  CHECK(rig.backoff_ns() > 19 * kSecond);
  CHECK(rig.backoff_ns() <= 20 * kSecond);
}

TEST_CASE("stream: a batch stays until it is acknowledged and goes again after a reconnect", "[agent]") {
  test::expect_log("not connected to the aggregator");
  Rig rig;
  rig.connect();
  CHECK(rig.connected == 1);
  rig.push("a");
  rig.event(LinkWritten{});
  rig.push("b");
  rig.event(LinkWritten{});
  REQUIRE(rig.wire.batches.size() == 2);
  CHECK(rig.wire.batches[0].sequence == 1);
  CHECK(rig.wire.batches[1].sequence == 2);
  CHECK(rig.store.records() == 2);
  rig.event(wire::Ack{1, 0});
  CHECK(rig.store.records() == 1);

  rig.event(LinkClosed{"restart"});
  rig.push("c");
  rig.wait_out_backoff();
  CHECK(rig.wire.hellos.back().first_unacknowledged == 2);
  CHECK(rig.wire.hellos.back().epoch == 7);
  rig.welcome(1);
  REQUIRE(rig.wire.batches.size() == 3);
  CHECK(rig.wire.batches[2].sequence == 2);
  CHECK(rig.wire.batches[2].records == std::vector<std::string>{"b"});
  rig.event(LinkWritten{});
  REQUIRE(rig.wire.batches.size() == 4);
  CHECK(rig.wire.batches[3].sequence == 3);
  CHECK(rig.wire.batches[3].records == std::vector<std::string>{"c"});
  CHECK(rig.session.stats().records_sent == 3);
  CHECK(rig.session.stats().records_resent == 1);
}

TEST_CASE("stream: what the aggregator stored before its acknowledgement was lost is not sent again", "[agent]") {
  test::expect_log("not connected to the aggregator");
  Rig rig;
  rig.connect();
  rig.push("a");
  rig.event(LinkClosed{"restart"});
  rig.wait_out_backoff();
  rig.welcome(1);
  CHECK(rig.wire.batches.size() == 1);
  CHECK(rig.store.records() == 0);
}

TEST_CASE("stream: a slow aggregator fills the window and then the outbox, nothing more", "[agent]") {
  Rig rig;
  rig.connect();
  for (int i = 0; i < 20; ++i) {
    rig.push("s");
    rig.event(LinkWritten{});
  }
  CHECK(rig.wire.batches.size() == 4);  // the window
  CHECK(rig.outbox.size() == 16);
  rig.event(wire::Ack{4, 0});
  CHECK(rig.wire.batches.size() == 5);
  CHECK(rig.wire.batches.back().records.size() == 16);
}

TEST_CASE("stream: one write is in flight at a time", "[agent]") {
  Rig rig;
  rig.connect();
  rig.push("a");
  rig.push("b");
  CHECK(rig.wire.batches.size() == 1);
  rig.event(LinkWritten{});
  CHECK(rig.wire.batches.size() == 2);
}

TEST_CASE("stream: an acknowledgement of what was never sent frees nothing and ends the link", "[agent]") {
  test::expect_log("acknowledged batch 1000000, the last one sent is 1");
  Rig rig;
  rig.connect();
  rig.push("a");
  rig.event(LinkWritten{});
  rig.event(wire::Ack{1'000'000, 3});
  CHECK(rig.session.state() == StreamState::Backoff);
  CHECK(rig.wire.open_links == 0);
  CHECK(rig.store.records() == 1);
  CHECK(rig.session.stats().records_rejected == 0);
  CHECK(rig.session.stats().failures == 1);
  // Its Welcome is the truth: what is not stored goes again, with its old number.
  rig.wait_out_backoff();
  CHECK(rig.wire.hellos.back().first_unacknowledged == 1);
  rig.welcome(0);
  REQUIRE(rig.wire.batches.size() == 2);
  CHECK(rig.wire.batches[1].sequence == 1);
  CHECK(rig.wire.batches[1].records == std::vector<std::string>{"a"});
  rig.event(LinkWritten{});
  rig.event(wire::Ack{1, 0});
  CHECK(rig.store.records() == 0);
  rig.push("b");
  CHECK(rig.wire.batches.back().sequence == 2);
  CHECK(test::logged().size() == 1);
}

TEST_CASE("stream: an acknowledgement that runs ahead of a resend is no error, and nothing is lost or sent twice over",
          "[agent]") {
  test::expect_log("not connected to the aggregator");
  Rig rig;
  rig.connect();
  for (const char* bytes : {"a", "b"}) {
    rig.push(bytes);
    rig.event(LinkWritten{});
  }
  rig.event(LinkClosed{"restart"});
  rig.wait_out_backoff();
  rig.welcome(0);
  // Both were stored after all, before the first is written again.
  rig.event(wire::Ack{2, 0});
  CHECK(rig.session.state() == StreamState::Connected);
  rig.event(LinkWritten{});
  rig.event(wire::Ack{2, 0});
  rig.event(LinkWritten{});
  rig.event(wire::Ack{2, 0});
  CHECK(rig.store.records() == 0);
  CHECK(rig.wire.batches.size() == 4);
  CHECK(rig.session.stats().records_sent == 2);
  CHECK(rig.session.stats().failures == 1);
}

TEST_CASE("stream: a refusal is logged once with its reason and tried again slowly", "[agent]") {
  test::expect_log("wrong fabric");
  Rig rig;
  rig.session.set_address("aggregator:1");
  for (int i = 0; i < 3; ++i) {
    rig.event(LinkOpened{});
    rig.event(wire::Welcome{0, 0, "wrong fabric"});
    CHECK(rig.backoff_ns() >= 30 * kSecond);
    CHECK(rig.wire.open_links == 0);
    rig.wait_out_backoff();
  }
  CHECK(test::logged().size() == 1);
}

TEST_CASE("stream: events of an attempt given up change nothing", "[agent]") {
  test::expect_log("not connected to the aggregator");
  Rig rig;
  rig.connect();
  const std::uint64_t old = rig.attempt;
  rig.event(LinkClosed{"reset"});
  rig.wait_out_backoff();
  rig.session.on_event(old, wire::Welcome{0, 0, ""});
  rig.session.on_event(old, LinkClosed{"late"});
  CHECK(rig.session.state() == StreamState::Connecting);
}

TEST_CASE("stream: a plan reaches the agent", "[agent]") {
  Rig rig;
  rig.connect();
  rig.event(model::ProbePlan{4, 8, {}});
  REQUIRE(rig.plans.size() == 1);
  CHECK(rig.plans[0].revision == 4);
}

TEST_CASE("stream: goodbye does not wait long for an aggregator that stores nothing (perftest PR 380)", "[agent]") {
  Rig rig;
  rig.connect();
  rig.push("a");
  rig.event(LinkWritten{});
  rig.session.begin_goodbye({30 * kSecond, "stopping"});
  rig.session.tick();
  CHECK(rig.wire.goodbyes.empty());
  rig.clock.advance(700 * kMillisecond);
  rig.session.tick();
  CHECK(rig.wire.goodbyes.size() == 1);
}

TEST_CASE("stream: goodbye goes after what waits is stored, and is done when the aggregator closes", "[agent]") {
  Rig rig;
  rig.connect();
  rig.push("a");
  rig.outbox.push({RecordClass::Sample, "", "b"});
  rig.session.begin_goodbye({30 * kSecond, "stopping"});
  CHECK(rig.wire.goodbyes.empty());
  rig.event(LinkWritten{});
  CHECK(rig.wire.batches.size() == 2);
  rig.event(LinkWritten{});
  CHECK(rig.wire.goodbyes.empty());
  rig.event(wire::Ack{2, 0});
  REQUIRE(rig.wire.goodbyes.size() == 1);
  CHECK(rig.wire.goodbyes[0].restart_allowance_ns == 30 * kSecond);
  CHECK_FALSE(rig.session.goodbye_done());
  rig.event(LinkClosed{"done"});
  CHECK(rig.session.goodbye_done());
  CHECK(rig.session.state() == StreamState::Inactive);
}

TEST_CASE("stream: nothing is sent after the goodbye", "[agent]") {
  Rig rig;
  rig.connect();
  rig.session.begin_goodbye({30 * kSecond, "stopping"});
  REQUIRE(rig.wire.goodbyes.size() == 1);
  rig.event(LinkWritten{});
  rig.push("late");
  CHECK(rig.wire.batches.empty());
}

TEST_CASE("stream: goodbye with nobody to hear it is done at once", "[agent]") {
  Rig rig;
  rig.session.begin_goodbye({30 * kSecond, "stopping"});
  CHECK(rig.session.goodbye_done());
}

TEST_CASE("stream: a new address drops the old session and connects there", "[agent]") {
  Rig rig;
  rig.connect();
  rig.session.set_address("other:1");
  CHECK(rig.session.state() == StreamState::Connecting);
  CHECK(rig.wire.open_links == 1);
  CHECK(rig.wire.hellos.size() == 2);
  rig.session.set_address("");
  CHECK(rig.session.state() == StreamState::Inactive);
  CHECK(rig.wire.open_links == 0);
}
