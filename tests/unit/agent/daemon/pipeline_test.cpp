#include "agent/daemon/pipeline.h"

#include "lib/wire/codec.h"
#include "tests/unit/agent/daemon/fake_engine.h"
#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::agent;

namespace {

model::Inventory inventory_with(std::vector<std::string> names, model::PortState state = model::PortState::Active) {
  model::Inventory out;
  for (std::string& name : names) {
    model::RdmaDevice device;
    device.name = std::move(name);
    model::RdmaPort port;
    port.state = state;
    device.ports.push_back(port);
    out.devices.push_back(std::move(device));
  }
  return out;
}

Settings settings(const std::string& toml = "[aggregator]\naddress = \"aggregator:1\"\n") {
  auto out = parse_settings(SystemFiles(), toml, "weftd.toml", "h1");
  REQUIRE(out);
  return std::move(*out);
}

struct FakeTracer final : TraceSource {
  explicit FakeTracer(std::vector<probes::TraceRequest>& asked, std::vector<model::PathTrace>& found)
      : asked_(asked), found_(found) {}
  void set_requests(const std::vector<probes::TraceRequest>& requests) override { asked_ = requests; }
  std::vector<model::PathTrace> take_traces() override { return std::exchange(found_, {}); }
  std::string problem() override { return ""; }
  probes::TraceStats stats() override { return {}; }
  std::vector<probes::TraceRequest>& asked_;
  std::vector<model::PathTrace>& found_;
};

// An aggregator that stores everything it is sent.
struct FakeAggregator {
  std::function<void(LinkEvent)> events;
  std::vector<wire::Record> records;
  std::vector<wire::Goodbye> goodbyes;
  std::uint64_t stored = 0;

  template <typename T>
  std::vector<T> of() const {
    std::vector<T> out;
    for (const auto& record : records) {
      if (const T* value = std::get_if<T>(&record)) out.push_back(*value);
    }
    return out;
  }
};

class FakeLink final : public StreamLink {
 public:
  FakeLink(FakeAggregator& aggregator, test::FakeThreads& threads) : aggregator_(aggregator), threads_(threads) {}
  void open(const std::string&, const wire::Hello&) override {
    later(LinkOpened{});
    later(wire::Welcome{aggregator_.stored, 0, ""});
  }
  void send(const wire::Batch& batch) override {
    for (const std::string& bytes : batch.records) {
      auto decoded = wire::decode_record(bytes, "h1");
      REQUIRE(decoded);
      CHECK(decoded->rejected_parts == 0);
      aggregator_.records.push_back(std::move(decoded->record));
    }
    aggregator_.stored = batch.sequence;
    later(LinkWritten{});
    later(wire::Ack{batch.sequence, 0});
  }
  void send_goodbye(const wire::Goodbye& goodbye) override {
    aggregator_.goodbyes.push_back(goodbye);
    later(LinkClosed{"done"});
  }

 private:
  void later(LinkEvent event) {
    threads_.posted.push_back([events = aggregator_.events, event] { events(event); });
  }
  FakeAggregator& aggregator_;
  test::FakeThreads& threads_;
};

struct Rig {
  explicit Rig(Settings start = settings()) : pipeline(std::move(start), {"1.0", "6.1", "boot", 7}, parts()) {}

  FakeClock clock;
  test::FakeThreads threads;
  std::map<std::string, test::FakeEngineState> devices;
  FakeAggregator aggregator;
  std::vector<probes::TraceRequest> traced;
  std::vector<model::PathTrace> found;
  int factories = 0;
  Pipeline pipeline;

  PipelineParts parts() {
    return {clock,
            threads.post(),
            threads.spawn(),
            [this](std::function<void(LinkEvent)> events) {
              aggregator.events = std::move(events);
              return std::make_unique<FakeLink>(aggregator, threads);
            },
            [this](const Settings&) {
              ++factories;
              return EngineFactory([this](const EndpointSpec& spec) -> Result<std::unique_ptr<probes::Engine>> {
                return std::unique_ptr<probes::Engine>(
                    std::make_unique<test::FakeEngine>(devices[spec.device], spec.device));
              });
            },
            [this](const Settings&) -> Result<std::unique_ptr<TraceSource>> {
              return std::unique_ptr<TraceSource>(std::make_unique<FakeTracer>(traced, found));
            },
            [] { return 0.5; }};
  }
  void inventory(model::Inventory what) {
    pipeline.on_inventory(std::move(what), {});
    threads.run_all();
  }
  void second(model::HostHealth health = {}) {
    clock.advance(kSecond);
    pipeline.on_second(health);
    threads.run_all();
  }
};

model::PlanTarget target(const std::string& device) {
  model::PlanTarget out;
  out.from_device = device;
  out.to = "h3/rxe0";
  out.to_address = "10.0.3.2";
  out.hello_port = 47910;
  out.paths = {{0, 0, 10}};
  return out;
}

}  // namespace

TEST_CASE("pipeline: a device that goes is let go and reported at once, and opened when it is back", "[agent]") {
  Rig rig;
  rig.inventory(inventory_with({"rxe0"}));
  REQUIRE(rig.pipeline.stream_state() == StreamState::Connected);
  REQUIRE(rig.aggregator.of<model::Inventory>().back().endpoints.size() == 1);

  rig.pipeline.on_device_gone("rxe0");
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].open == 0);
  const model::Inventory without = rig.aggregator.of<model::Inventory>().back();
  CHECK(without.endpoints.empty());
  CHECK(without.devices.empty());
  REQUIRE_FALSE(without.limitations.empty());
  CHECK(without.limitations[0].subject == "rnic:h1/rxe0");

  rig.inventory(inventory_with({}));
  rig.second();
  CHECK(rig.devices["rxe0"].opened == 1);
  rig.inventory(inventory_with({"rxe0"}));
  rig.second();
  CHECK(rig.devices["rxe0"].open == 1);
  CHECK(rig.aggregator.of<model::Inventory>().back().endpoints.size() == 1);
}

TEST_CASE("pipeline: an inventory that cannot be read keeps the last one and says why", "[agent]") {
  test::expect_log("cannot read; the last one stands");
  Rig rig;
  rig.inventory(inventory_with({"rxe0"}));
  rig.pipeline.on_inventory(make_error(Error::Kind::Internal, "sysfs is not mounted"), {});
  rig.second();
  CHECK(rig.devices["rxe0"].open == 1);
  const auto last = rig.aggregator.of<model::Inventory>().back();
  CHECK(last.devices.size() == 1);
  REQUIRE(last.limitations.size() == 1);
  CHECK_THAT(last.limitations[0].why, ContainsSubstring("sysfs is not mounted"));
}

TEST_CASE("pipeline: windows and health reach the aggregator each second", "[agent]") {
  Rig rig;
  rig.inventory(inventory_with({"rxe0"}));
  model::PathWindow window;
  window.key = {"h1/rxe0", "h3/rxe0", 49152, 49153};
  window.sent = window.acked = 10;
  rig.devices["rxe0"].windows = {window};
  rig.devices["rxe0"].stats.throttled = 5;
  rig.devices["rxe0"].stats.responder_low_water = 12;
  model::HostHealth health;
  health.max_gap_ns = 30 * kMillisecond;
  rig.second(health);
  CHECK(rig.aggregator.of<model::PathWindow>() == std::vector<model::PathWindow>{window});
  rig.second(health);
  const auto seen = rig.aggregator.of<model::HostHealth>();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].max_gap_ns == 30 * kMillisecond);
  CHECK(seen[0].responder_low_water == 12u);
  CHECK(seen[0].probes_throttled == 5);
  CHECK(seen[1].probes_throttled == 0);
}

TEST_CASE("pipeline: a host that runs late sends its health by itself, before it asks its engines anything",
          "[agent]") {
  Rig rig;
  rig.inventory(inventory_with({"rxe0"}));
  rig.second();
  rig.aggregator.records.clear();
  const std::uint64_t batches = rig.aggregator.stored;
  std::size_t reported = 0;
  rig.devices["rxe0"].on_take_windows = [&] { reported = rig.aggregator.of<model::HostHealth>().size(); };
  model::PathWindow window;
  window.key = {"h1/rxe0", "h3/rxe0", 1, 2};
  rig.devices["rxe0"].windows = {window};
  model::HostHealth late;
  late.window_ns = kSecond;
  late.max_gap_ns = 800 * kMillisecond;
  rig.second(late);
  CHECK(reported == 1);
  CHECK(rig.aggregator.of<model::PathWindow>().size() == 1);
  CHECK(rig.aggregator.stored == batches + 2);
  // On time, one batch a second carries both.
  late.max_gap_ns = 20 * kMillisecond;
  rig.devices["rxe0"].windows = {window};
  rig.second(late);
  CHECK(rig.aggregator.of<model::PathWindow>().size() == 2);
  CHECK(rig.aggregator.stored == batches + 3);
}

TEST_CASE("pipeline: the plan is followed, and kept while the aggregator is away", "[agent]") {
  test::expect_log("not connected to the aggregator");
  Rig rig;
  rig.inventory(inventory_with({"rxe0"}));
  rig.aggregator.events(model::ProbePlan{1, 12, {target("rxe0")}});
  CHECK(rig.devices["rxe0"].targets.size() == 1);
  CHECK(rig.devices["rxe0"].ports_wanted == 12);
  rig.aggregator.events(LinkClosed{"restart"});
  rig.second();
  CHECK(rig.devices["rxe0"].targets.size() == 1);
}

TEST_CASE("pipeline: a new session hears inventory and traces again", "[agent]") {
  test::expect_log("not connected to the aggregator");
  Rig rig;
  rig.inventory(inventory_with({"rxe0"}));
  rig.aggregator.events(model::ProbePlan{1, 0, {target("rxe0")}});
  model::PathTrace trace;
  trace.from = "h1/rxe0";
  trace.to = "h3/rxe0";
  trace.from_address = "10.0.1.2";
  trace.to_address = "10.0.3.2";
  trace.source_port = 49152;
  trace.hops = {{1, "10.0.1.1"}};
  rig.devices["rxe0"].prober_ports = {49152};
  rig.second();
  REQUIRE(rig.traced.size() == 1);
  CHECK(rig.traced[0].source_port == 49152);
  rig.found = {trace};
  rig.second();
  REQUIRE(rig.aggregator.of<model::PathTrace>().size() == 1);

  rig.aggregator.events(LinkClosed{"restart"});
  rig.aggregator.records.clear();
  rig.second();
  CHECK(rig.aggregator.of<model::Inventory>().size() == 1);
  CHECK(rig.aggregator.of<model::PathTrace>() == std::vector<model::PathTrace>{trace});
}

TEST_CASE("pipeline: a peer that refuses is a limitation with its reason, one that is silent is not", "[agent]") {
  Rig rig;
  rig.inventory(inventory_with({"rxe0"}));
  rig.devices["rxe0"].peers = {{"h3/rxe0", probes::PeerState::Refused, "wrong key", 0, "rdma", "10.0.3.2", {}},
                               {"h4/rxe0", probes::PeerState::Hello, "no answer yet", 0, "rdma", "10.0.4.2", {}}};
  rig.second();
  rig.second();
  const auto limitations = rig.aggregator.of<model::Inventory>().back().limitations;
  REQUIRE(limitations.size() == 1);
  CHECK(limitations[0].subject == "pair:h1>h3");
  CHECK(limitations[0].why == "wrong key");
}

TEST_CASE("pipeline: reload changes what can change and says what needs a restart", "[agent]") {
  test::expect_log("takes effect at the next start");
  Rig rig;
  rig.inventory(inventory_with({"rxe0", "rxe1"}));
  rig.pipeline.reload(settings("[agent]\nname = \"other\"\n[aggregator]\naddress = \"aggregator:1\"\n"));
  rig.threads.run_all();
  CHECK(rig.factories == 1);  // nothing of the engines changed
  rig.pipeline.reload(settings("[aggregator]\naddress = \"aggregator:1\"\n[probe]\ndevices = [\"rxe1\"]\n"));
  rig.threads.run_all();
  CHECK(rig.factories == 2);
  CHECK(rig.devices["rxe0"].open == 0);
  CHECK(rig.devices["rxe1"].open == 1);
  CHECK(rig.pipeline.reported().host == "h1");
}

TEST_CASE("pipeline: alone, nothing is kept for an aggregator that is not there", "[agent]") {
  Rig rig(settings(""));
  rig.inventory(inventory_with({"rxe0"}));
  for (int i = 0; i < 5; ++i) rig.second();
  CHECK(rig.pipeline.stream_state() == StreamState::Inactive);
  for (const model::MetricSample& sample : rig.pipeline.page()) {
    if (sample.name == "weft_stream_waiting") CHECK(sample.value == 0);
  }
  CHECK(rig.devices["rxe0"].open == 1);
}

TEST_CASE("pipeline: stopping sends the last windows, then the goodbye, and closes the devices", "[agent]") {
  Rig rig;
  rig.inventory(inventory_with({"rxe0"}));
  model::PathWindow window;
  window.key = {"h1/rxe0", "h3/rxe0", 49152, 49153};
  rig.devices["rxe0"].windows = {window};
  rig.pipeline.stop("SIGTERM");
  CHECK_FALSE(rig.pipeline.stopped());
  rig.threads.run_all();
  CHECK(rig.pipeline.stopped());
  CHECK(rig.devices["rxe0"].open == 0);
  CHECK(rig.aggregator.of<model::PathWindow>().size() == 1);
  CHECK(rig.aggregator.of<model::Inventory>().back().endpoints.size() == 1);  // closing is no news
  REQUIRE(rig.aggregator.goodbyes.size() == 1);
  CHECK(rig.aggregator.goodbyes[0].restart_allowance_ns == 30 * kSecond);
}
