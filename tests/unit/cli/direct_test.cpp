#include "cli/direct.h"

#include <map>

#include "cli/host_inventory.h"
#include "cli/timestamp_modes.h"
#include "probes/ping/udp_transport.h"
#include "tests/unit/catch.h"
#include "tests/unit/cli/blocking.h"
#include "tests/unit/probes/ping/fake_transport.h"

using namespace weft;
using namespace weft::cli;

namespace {

using Opened = Result<std::unique_ptr<probes::Transport>>;

constexpr Nanos kShort = 200 * kMillisecond;
constexpr Nanos kLonger = 3 * kSecond;           // where others have to be done before it is over
constexpr const char* kBeyond = "10.9.9.9";      // reached from another address than the other peers
constexpr Nanos kFarFromHanging = 20 * kSecond;  // a busy builder is slow; a hanging call never ends

model::RdmaDevice device(const char* name, const char* address) {
  model::RdmaDevice out;
  out.name = name;
  model::RdmaPort port;
  port.state = model::PortState::Active;
  port.link_layer = model::LinkLayer::Ethernet;
  port.netdev = "eth0";
  port.gids = {{0, model::Gid::parse("fe80::1").value(), model::GidType::RoceV2, "eth0"},
               {1, model::Gid::parse(address).value(), model::GidType::RoceV2, "eth0"}};
  out.ports = {port};
  return out;
}

// What stands in for RDMA: sockets on the address of the device.
Opened sockets_at(const std::string& address) {
  static const SystemClock clock;
  probes::UdpTransportOptions options;
  options.local = *model::Gid::parse(address);
  options.prober_ports = options.responder_ports = {0};
  return probes::open_udp_transport(options, clock);
}

struct Fixture {
  test::Blocked blocked;
  model::Inventory inventory;
  std::map<std::string, std::function<Opened()>> open;  // by device
  DirectOptions options;
  EngineNeeds needs;
  SystemClock clock;

  Fixture() {
    inventory.devices = {device("rxe0", "127.0.0.1")};
    needs.open_within_ns = kShort;
  }
  DirectParts parts() const {
    return {[inventory = inventory](const std::string&, Nanos) { return Result<model::Inventory>(inventory); },
            [open = open](const probes::RdmaTransportOptions& o) { return open.at(o.device)(); },
            [](const std::string& to) { return Result<std::string>(to == kBeyond ? "127.0.0.9" : "127.0.0.1"); }};
  }
  std::function<Opened()> blocking() const {
    return [gate = blocked.gate]() -> Opened {
      gate->pass();
      return make_error(Error::Kind::Internal, "too late");
    };
  }
  static std::function<Opened()> failing(Error::Kind kind, const char* words) {
    return [kind, words]() -> Opened { return make_error(kind, words); };
  }
  Result<std::unique_ptr<Direct>> run(const std::vector<std::string>& peers) {
    std::vector<HostAddress> hosts;
    for (const std::string& peer : peers) hosts.push_back({peer, peer});
    return Direct::open(options, hosts, needs, clock, parts());
  }
};

// One file of sysfs that never gives its contents.
struct BlockingFiles final : FileReader {
  SystemFiles files;
  std::shared_ptr<test::Gate> gate;
  std::string path;
  Result<std::string> read(const std::string& at, std::size_t limit) const override {
    if (at == path) gate->pass();
    return files.read(at, limit);
  }
  Result<std::vector<std::string>> list(const std::string& at) const override {
    if (at == path) gate->pass();
    return files.list(at);
  }
  Result<std::string> read_link(const std::string& at) const override { return files.read_link(at); }
};

}  // namespace

TEST_CASE("a device that blocks in opening is given up at the deadline, with device, port and step", "[cli]") {
  Fixture f;
  f.open["rxe0"] = f.blocking();
  const Nanos started = f.clock.monotonic_ns();
  const auto direct = f.run({"127.0.0.2"});
  REQUIRE_FALSE(direct);
  CHECK(direct.error().kind == Error::Kind::Timeout);
  CHECK_THAT(direct.error().message(), ContainsSubstring("opening RDMA device rxe0 port 1: not done within 200 ms"));
  CHECK(f.clock.monotonic_ns() - started < kFarFromHanging);
}

TEST_CASE("a sysfs read that blocks is given up at the deadline, with the file named", "[cli]") {
  test::Blocked blocked;
  auto files = std::make_shared<BlockingFiles>();
  files->gate = blocked.gate;
  files->path = "/nowhere/class/infiniband";
  const auto inventory = host_inventory("/nowhere", kShort, files);
  REQUIRE_FALSE(inventory);
  CHECK(inventory.error().kind == Error::Kind::Timeout);
  CHECK_THAT(inventory.error().message(), ContainsSubstring("reading /nowhere/class/infiniband: not done within"));
}

TEST_CASE("an inventory that cannot be had in time ends the opening with its words", "[cli]") {
  Fixture f;
  DirectParts parts = f.parts();
  parts.inventory = [](const std::string&, Nanos) -> Result<model::Inventory> {
    return make_error(Error::Kind::Timeout, "reading /sys/class/infiniband/rxe0: not done");
  };
  const auto direct = Direct::open(f.options, {{"127.0.0.2", "127.0.0.2"}}, f.needs, f.clock, parts);
  REQUIRE_FALSE(direct);
  CHECK(direct.error().kind == Error::Kind::Timeout);
}

TEST_CASE("a device that blocks or fails hides no other: its host has the reason, the other is measured", "[cli]") {
  Fixture f;
  f.needs.open_within_ns = kLonger;
  f.inventory.devices.push_back(device("rxe1", "127.0.0.9"));
  f.open["rxe1"] = [] { return sockets_at("127.0.0.9"); };
  std::string words;
  SECTION("blocks") {
    f.open["rxe0"] = f.blocking();
    words = "opening RDMA device rxe0 port 1";
  }
  SECTION("fails") {
    f.open["rxe0"] = Fixture::failing(Error::Kind::Transient, "rxe0 port 1: the port is DOWN");
    words = "rxe0 port 1: the port is DOWN";
  }
  const auto direct = f.run({"127.0.0.2", kBeyond});
  REQUIRE(direct);
  REQUIRE((*direct)->failed(0) != nullptr);
  CHECK_THAT((*direct)->failed(0)->message(), ContainsSubstring(words));
  CHECK((*direct)->place_index(0) == kNoPlace);
  CHECK((*direct)->failed(1) == nullptr);
  CHECK((*direct)->place_of(1).local.device == "rxe1");
}

TEST_CASE("when no host can be measured every reason is told once", "[cli]") {
  Fixture f;
  f.inventory.devices.push_back(device("rxe1", "127.0.0.9"));
  f.open["rxe0"] = Fixture::failing(Error::Kind::Transient, "rxe0 is down");
  f.open["rxe1"] = Fixture::failing(Error::Kind::Transient, "rxe1 is down");
  const auto direct = f.run({"127.0.0.2", "127.0.0.3", kBeyond});
  REQUIRE_FALSE(direct);
  CHECK(direct.error().message() == "rxe0 is down; rxe1 is down");
}

TEST_CASE("transport auto: a device without UD, or that may not be opened, is replaced by UDP, and that is said",
          "[cli]") {
  Fixture f;
  SECTION("no UD") {
    f.open["rxe0"] = Fixture::failing(Error::Kind::Unsupported, "efa_0 port 1: no UD queue pairs here");
  }
  SECTION("no permission") {
    f.open["rxe0"] = Fixture::failing(Error::Kind::Permission, "efa_0 port 1: no UD queue pairs here");
  }
  const auto direct = f.run({"127.0.0.2", "127.0.0.3"});
  REQUIRE(direct);
  REQUIRE((*direct)->places().size() == 1);
  CHECK_FALSE((*direct)->place_of(0).local.rdma);
  CHECK((*direct)->place_of(0).label == "udp lo, 127.0.0.1");
  CHECK((*direct)->place_of(0).local.why == "RDMA device rxe0 cannot be used");
  CHECK((*direct)->notes() ==
        std::vector<std::string>{"efa_0 port 1: no UD queue pairs here; measuring over UDP instead"});
}

TEST_CASE("RDMA asked for is never replaced: by transport, by device, by GID; nor what is not the device's nature",
          "[cli]") {
  Fixture f;
  Error::Kind kind = Error::Kind::Unsupported;
  SECTION("by transport") { f.options.transport = "rdma"; }
  SECTION("by device") { f.options.device = "rxe0"; }
  SECTION("by GID") { f.options.gid_index = 1; }
  SECTION("a port that is down may come back") { kind = Error::Kind::Transient; }
  SECTION("a wrong GID is to be put right") { kind = Error::Kind::Invalid; }
  f.open["rxe0"] = Fixture::failing(kind, "rxe0 port 1: no way");
  const auto direct = f.run({"127.0.0.2"});
  REQUIRE_FALSE(direct);
  CHECK(direct.error().message() == "rxe0 port 1: no way");
}

TEST_CASE("a responder with transport auto answers over UDP where no RDMA device can be used", "[cli]") {
  Fixture f;
  f.open["rxe0"] = Fixture::failing(Error::Kind::Unsupported, "rxe0 port 1: no UD queue pairs here");
  f.needs.answer = true;
  f.options.source = "127.0.0.1";
  f.options.hello_port = 0;
  const auto direct = Direct::open_all(f.options, f.needs, f.clock, f.parts());
  REQUIRE(direct);
  REQUIRE((*direct)->places().size() == 1);
  CHECK_FALSE((*direct)->places()[0].local.rdma);
  CHECK((*direct)->notes().front() == "rxe0 port 1: no UD queue pairs here");
  f.options.transport = "rdma";
  CHECK_FALSE(Direct::open_all(f.options, f.needs, f.clock, f.parts()));
}

TEST_CASE("the place says why it was chosen, and which GID of it and why", "[cli]") {
  Fixture f;
  const auto chosen = choose_place(f.options, f.inventory, "127.0.0.1");
  REQUIRE(chosen);
  CHECK_THAT(
      how_chosen(*chosen),
      ContainsSubstring("it owns 127.0.0.1, the address packets to the peer leave from; GID index 1, 127.0.0.1"));
  f.options.gid_index = 0;
  CHECK_THAT(how_chosen(*choose_place(f.options, f.inventory, "127.0.0.1")),
             ContainsSubstring("GID index 0") && ContainsSubstring("asked for"));
  f.options.gid_index = 9;
  CHECK(choose_place(f.options, f.inventory, "127.0.0.1")->gid.empty());
  f.options.transport = "udp";
  CHECK(how_chosen(*choose_place(f.options, f.inventory, "127.0.0.1")) == "--transport udp");
}

TEST_CASE("who stamps probes: each active port for itself, one that fails or blocks with its reason (perftest PR 286)",
          "[cli]") {
  Fixture f;
  f.inventory.devices = {device("good", "10.0.1.2"), device("bad", "10.0.1.3"), device("stuck", "10.0.1.4"),
                         device("down", "10.0.1.5")};
  f.inventory.devices[3].ports[0].state = model::PortState::Down;
  f.open["good"] = []() -> Opened {
    auto transport = std::make_unique<test::FakeTransport>();
    transport->stamp_rung = model::TimestampRung::NicTicks;
    return std::unique_ptr<probes::Transport>(std::move(transport));
  };
  f.open["bad"] = Fixture::failing(Error::Kind::Permission, "bad: /dev/infiniband/uverbs1: no permission");
  f.open["stuck"] = f.blocking();
  const auto modes = timestamp_modes(f.inventory, f.options, kLonger, f.clock, f.parts());
  REQUIRE(modes.size() == 3);
  CHECK(modes.at("good/1").rung == model::TimestampRung::NicTicks);
  CHECK_FALSE(modes.at("bad/1").rung);
  CHECK(modes.at("bad/1").why == "bad: /dev/infiniband/uverbs1: no permission");
  CHECK_FALSE(modes.at("stuck/1").rung);
  CHECK_THAT(modes.at("stuck/1").why, ContainsSubstring("not done within"));
}

TEST_CASE("options of RDMA that a fall back to UDP leaves without a meaning are noted", "[cli]") {
  Fixture f;
  f.options.device_port = 2;
  std::string given = "--device-port", why = "no RDMA device here has a port 2";
  SECTION("no such port") {}
  SECTION("no device") {
    f.inventory.devices.clear();
    f.options.gid_index = 3;
    given = "--gid and --device-port";
    why = "no RDMA device here";
  }
  const auto direct = f.run({"127.0.0.2"});
  REQUIRE(direct);
  CHECK_FALSE((*direct)->place_of(0).local.rdma);
  CHECK((*direct)->place_of(0).local.why == why);
  CHECK((*direct)->notes() == std::vector<std::string>{given + ": no meaning over UDP, which is used here"});
  f.needs.answer = true;
  f.options.source = "127.0.0.1";
  f.options.hello_port = 0;
  const auto responder = Direct::open_all(f.options, f.needs, f.clock, f.parts());
  REQUIRE(responder);
  CHECK_THAT((*responder)->notes().back(), ContainsSubstring(given + ": no meaning over UDP"));
}

TEST_CASE("a port that the named device does not have is refused, not replaced", "[cli]") {
  Fixture f;
  f.options.device = "rxe0";
  f.options.device_port = 2;
  const auto place = choose_place(f.options, f.inventory, "127.0.0.1");
  REQUIRE_FALSE(place);
  CHECK(place.error().kind == Error::Kind::NotFound);
  CHECK(place.error().message() == "rxe0 has no port 2");
}

TEST_CASE("over UDP an interface is asked for by --device: probes leave from its address, or it is refused", "[cli]") {
  Fixture f;
  f.options.transport = "udp";
  f.options.device = "lo";
  const auto place = choose_place(f.options, f.inventory, "10.9.9.1");
  REQUIRE(place);
  CHECK(place->address == "127.0.0.1");
  CHECK(place->why == "--device lo");
  f.options.device = "nothing0";
  const auto none = choose_place(f.options, f.inventory, "10.9.9.1");
  REQUIRE_FALSE(none);
  CHECK(none.error().kind == Error::Kind::NotFound);
  CHECK_THAT(none.error().message(), ContainsSubstring("nothing0"));
}
