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
    port.netdev = "eth1";
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
  explicit Rig(Settings start = settings(), std::optional<Error> no_tracer = {})
      : tracer_error(std::move(no_tracer)), pipeline(std::move(start), {"1.0", "6.1", "boot", 7}, parts()) {}

  FakeClock clock;
  test::FakeThreads threads;
  std::map<std::string, test::FakeEngineState> devices;
  FakeAggregator aggregator;
  std::vector<probes::TraceRequest> traced;
  std::vector<model::PathTrace> found;
  int factories = 0;
  std::map<std::string, Error> open_errors;
  std::vector<NetInterface> interfaces;
  std::optional<Error> tracer_error;
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
                const auto error = open_errors.find(spec.device);
                if (error != open_errors.end()) return error->second;
                return std::unique_ptr<probes::Engine>(
                    std::make_unique<test::FakeEngine>(devices[spec.device], spec.device));
              });
            },
            [this](const Settings&) -> Result<std::unique_ptr<TraceSource>> {
              if (tracer_error) return *tracer_error;
              return std::unique_ptr<TraceSource>(std::make_unique<FakeTracer>(traced, found));
            },
            [] { return 0.5; }};
  }
  void inventory(model::Inventory what) {
    pipeline.on_inventory(std::move(what), interfaces);
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

namespace {

// A host whose only RDMA device cannot be opened, and what came of it within some seconds.
struct RefusedRig : Rig {
  explicit RefusedRig(Settings start = settings()) : Rig(std::move(start)) {
    test::expect_log("no permission for uverbs0");
    NetInterface eth1;
    eth1.name = "eth1";
    eth1.address = "10.0.1.2";
    eth1.up = true;
    interfaces = {eth1};
    refuse();
    inventory(inventory_with({"rxe0"}));
    for (int i = 0; i < 5; ++i) second();
  }
  void refuse() { open_errors["rxe0"] = make_error(Error::Kind::Permission, "no permission for uverbs0"); }
  bool udp() { return devices["eth1"].open == 1; }
  bool says_udp() {
    const auto& all = pipeline.reported().limitations;
    return std::any_of(all.begin(), all.end(), [](const auto& one) {
      return one.subject == "host:h1" && one.why.find("so paths are probed over UDP") != std::string::npos &&
             one.why.find("rxe0 port 1: no permission for uverbs0") != std::string::npos;
    });
  }
};

}  // namespace

TEST_CASE("pipeline: RDMA that may not be used gives way to UDP, and comes back by itself when it may", "[agent]") {
  test::expect_log("probing over UDP instead");
  RefusedRig rig;
  CHECK(rig.udp());
  CHECK(rig.says_udp());
  CHECK(rig.aggregator.of<model::Inventory>().back().endpoints.size() == 1);
  for (int i = 0; i < 60; ++i) rig.second();
  CHECK(rig.devices["eth1"].opened == 1);  // each try of RDMA leaves UDP alone

  // While UDP holds the hello port, RDMA gets as far as that.
  rig.open_errors["rxe0"] = make_error(Error::Kind::Exhausted, "hello port taken");
  test::expect_log("hello port taken");
  for (int i = 0; i < 31 && rig.udp(); ++i) rig.second();
  rig.open_errors.clear();
  for (int i = 0; i < 3; ++i) rig.second();
  CHECK_FALSE(rig.udp());
  CHECK(rig.devices["rxe0"].open == 1);
  CHECK_FALSE(rig.says_udp());
  CHECK(rig.pipeline.reported().limitations.empty());
}

TEST_CASE("pipeline: a device that can be used now and then does not make a host change its transport each time",
          "[agent]") {
  test::expect_log("probing over UDP instead");
  test::expect_log("stopped");
  RefusedRig rig;
  int turns = 0;
  for (int minute = 0; minute < 10; ++minute) {
    rig.open_errors.clear();
    rig.pipeline.on_device_back("rxe0");
    for (int i = 0; i < 3; ++i) rig.second();
    CHECK(rig.devices["rxe0"].open == 1);
    rig.refuse();
    rig.devices["rxe0"].failure = "stopped";
    rig.second();
    rig.devices["rxe0"].failure.clear();
    const int before = rig.devices["eth1"].opened;
    for (int i = 0; i < 20; ++i) rig.second();
    turns += rig.devices["eth1"].opened - before;
  }
  CHECK(turns == 0);
  for (int i = 0; i < 60; ++i) rig.second();
  CHECK(rig.udp());
}

TEST_CASE("pipeline: transport rdma waits for RDMA, UDP is not asked", "[agent]") {
  RefusedRig rig(settings("[probe]\ntransport = \"rdma\"\n"));
  CHECK_FALSE(rig.udp());
  CHECK(rig.pipeline.reported().endpoints.empty());
  CHECK_FALSE(rig.pipeline.reported().limitations.empty());
}

TEST_CASE("pipeline: a driver that is unloaded because nobody could use it leaves UDP as it is", "[agent]") {
  test::expect_log("probing over UDP instead");
  RefusedRig rig;
  rig.interfaces[0].hardware = true;
  rig.pipeline.on_device_gone("rxe0");
  rig.threads.run_all();
  rig.inventory(inventory_with({}));
  for (int i = 0; i < 30; ++i) rig.second();
  CHECK(rig.udp());
  CHECK(rig.devices["eth1"].opened == 1);
  rig.open_errors.clear();
  rig.inventory(inventory_with({"rxe0"}));
  for (int i = 0; i < 3; ++i) rig.second();
  CHECK(rig.devices["rxe0"].open == 1);
  CHECK_FALSE(rig.udp());
}

TEST_CASE("pipeline: a host whose only device blocks from the start probes over UDP until the device can be read",
          "[agent]") {
  Rig rig;
  NetInterface eth1;
  eth1.name = "eth1";
  eth1.address = "10.0.1.2";
  eth1.up = eth1.hardware = true;
  rig.interfaces = {eth1};
  model::Inventory blocked = inventory_with({"rxe0"});
  blocked.devices[0].ports.clear();
  rig.inventory(blocked);
  rig.second();
  CHECK(rig.devices["eth1"].open == 1);
  const auto says_udp = [&] {
    const auto& all = rig.pipeline.reported().limitations;
    return std::any_of(all.begin(), all.end(), [](const auto& one) {
      return one.subject == "host:h1" && one.why.find("so paths are probed over UDP") != std::string::npos;
    });
  };
  CHECK(says_udp());

  rig.inventory(inventory_with({"rxe0"}));
  for (int i = 0; i < 3; ++i) rig.second();
  CHECK(rig.devices["eth1"].open == 0);
  CHECK(rig.devices["rxe0"].open == 1);
  CHECK_FALSE(says_udp());

  // From here on it is a host of RDMA: another transport would measure other paths under the same names.
  rig.inventory(blocked);
  for (int i = 0; i < 3; ++i) rig.second();
  CHECK(rig.devices["eth1"].open == 0);
  CHECK_FALSE(says_udp());
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

TEST_CASE("pipeline: a peer that refuses, or that nothing can be sent to, is a limitation; one that is silent is not",
          "[agent]") {
  Rig rig;
  rig.inventory(inventory_with({"rxe0"}));
  rig.devices["rxe0"].peers = {
      {"h3/rxe0", probes::PeerState::Refused, "wrong key", 0, "rdma", "10.0.3.2", {}},
      {"h4/rxe0", probes::PeerState::Hello, "no answer yet", 0, "rdma", "10.0.4.2", {}},
      {"h5/rxe0", probes::PeerState::Ready, "", 7, "rdma", "10.0.5.2", {}, "", "no such port"}};
  rig.second();
  rig.second();
  const auto limitations = rig.aggregator.of<model::Inventory>().back().limitations;
  REQUIRE(limitations.size() == 2);
  CHECK(limitations[0].subject == "pair:h1>h3");
  CHECK(limitations[0].why == "wrong key");
  CHECK(limitations[1].subject == "pair:h1>h5");
  CHECK(limitations[1].why == "no such port");
}

TEST_CASE("pipeline: without CAP_NET_RAW nothing is traced, which is said with the way out, and probing goes on",
          "[agent]") {
  test::expect_log("paths cannot be traced");
  Rig rig(settings(), make_error(Error::Kind::Permission, "raw socket: needs CAP_NET_RAW"));
  rig.inventory(inventory_with({"rxe0"}));
  rig.aggregator.events(model::ProbePlan{1, 0, {target("rxe0")}});
  model::PathWindow window;
  window.key = {"h1/rxe0", "h3/rxe0", 49152, 49153};
  window.sent = window.acked = 10;
  rig.devices["rxe0"].windows = {window};
  rig.second();
  CHECK(rig.devices["rxe0"].targets.size() == 1);
  CHECK(rig.aggregator.of<model::PathWindow>() == std::vector<model::PathWindow>{window});
  const auto limitations = rig.aggregator.of<model::Inventory>().back().limitations;
  REQUIRE(limitations.size() == 1);
  CHECK(limitations[0].subject == "host:h1");
  CHECK_THAT(limitations[0].why, ContainsSubstring("needs CAP_NET_RAW"));
  CHECK_THAT(limitations[0].how, ContainsSubstring("trace.enabled = false"));
}

TEST_CASE("pipeline: it no longer progresses when every device blocks in its driver, and does again when one returns",
          "[agent]") {
  test::expect_log("opening the device has not returned");
  Rig rig;
  CHECK(rig.pipeline.progressing());
  rig.pipeline.on_inventory(inventory_with({"rxe0", "rxe1"}), {});
  auto blocked = std::exchange(rig.threads.spawned, {});
  REQUIRE(blocked.size() == 2);
  for (int i = 0; i < 4; ++i) rig.second();
  CHECK(rig.pipeline.progressing());
  for (int i = 0; i < 4; ++i) rig.second();
  CHECK_FALSE(rig.pipeline.progressing());
  CHECK(rig.pipeline.reported().limitations.size() == 2);
  blocked.front()();
  rig.second();
  CHECK(rig.pipeline.progressing());
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
  for (const model::MetricSample& sample : rig.pipeline.page({})) {
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
