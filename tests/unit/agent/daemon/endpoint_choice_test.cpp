#include "agent/daemon/endpoint_choice.h"

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::agent;

namespace {

model::RdmaDevice device(std::string name, model::PortState state, unsigned ports = 1) {
  model::RdmaDevice out;
  out.name = std::move(name);
  for (unsigned number = 1; number <= ports; ++number) {
    model::RdmaPort port;
    port.number = number;
    port.state = state;
    port.link_layer = model::LinkLayer::Ethernet;
    port.netdev = "eth" + std::to_string(number);
    out.ports.push_back(port);
  }
  return out;
}

model::Inventory host(std::vector<model::RdmaDevice> devices) {
  model::Inventory out;
  out.host = "h1";
  out.devices = std::move(devices);
  return out;
}

NetInterface interface(std::string name, std::string address, bool hardware = true, bool up = true) {
  NetInterface out;
  out.name = std::move(name);
  out.address = std::move(address);
  out.prefix_length = 24;
  out.up = up;
  out.hardware = hardware;
  return out;
}

NetInterface loopback() {
  NetInterface out = interface("lo", "127.0.0.1", false);
  out.prefix_length = 8;
  out.loopback = true;
  return out;
}

const std::vector<NetInterface> kInterfaces = {loopback(), interface("eth1", "10.0.1.2"),
                                               interface("docker0", "172.17.0.1", false)};

}  // namespace

TEST_CASE(
    "endpoints: every allowed RDMA port is one, not only the first, and a port that is down says so (rpingmesh PR 31)",
    "[agent]") {
  const auto choice =
      choose_endpoints(host({device("mlx5_0", model::PortState::Active, 2), device("mlx5_1", model::PortState::Down)}),
                       kInterfaces, ProbeSettings{}, false);
  REQUIRE(choice.specs.size() == 3);
  CHECK(choice.specs[0].device == "mlx5_0");
  CHECK(choice.specs[1].device == "mlx5_0.2");
  CHECK(choice.specs[1].rdma_device == "mlx5_0");
  CHECK(choice.specs[1].ready);
  CHECK_FALSE(choice.specs[2].ready);
  REQUIRE(choice.limitations.size() == 1);
  CHECK(choice.limitations[0].subject == "port:h1/mlx5_1/1");
  CHECK_THAT(choice.limitations[0].why, ContainsSubstring("DOWN"));
}

TEST_CASE("endpoints: the allow-list holds, and a name that is not here is said", "[agent]") {
  ProbeSettings settings;
  settings.devices = {"rxe1", "rxe7"};
  const auto choice = choose_endpoints(
      host({device("rxe0", model::PortState::Active), device("rxe1", model::PortState::Active)}), {}, settings, true);
  REQUIRE(choice.specs.size() == 1);
  CHECK(choice.specs[0].device == "rxe1");
  REQUIRE(choice.limitations.size() == 1);
  CHECK(choice.limitations[0].subject == "rnic:h1/rxe7");
}

TEST_CASE("endpoints: a host that never had an RDMA device probes over UDP and says what that misses", "[agent]") {
  const auto choice = choose_endpoints(host({}), kInterfaces, ProbeSettings{}, false);
  REQUIRE(choice.specs.size() == 1);
  CHECK(choice.specs[0].device == "eth1");
  CHECK(choice.specs[0].address == "10.0.1.2");
  REQUIRE(choice.limitations.size() == 1);
  CHECK_THAT(choice.limitations[0].why, ContainsSubstring("no RDMA device"));
}

TEST_CASE("endpoints: a host whose RDMA device went away does not turn to UDP", "[agent]") {
  const auto choice = choose_endpoints(host({}), kInterfaces, ProbeSettings{}, true);
  CHECK(choice.specs.empty());
  CHECK(choice.limitations.size() == 1);
}

TEST_CASE("endpoints: a device of which nothing could ever be read leaves its host to UDP, and is not called absent",
          "[agent]") {
  const auto blocked = host({device("mlx5_0", model::PortState::Active, 0)});
  const auto choice = choose_endpoints(blocked, kInterfaces, ProbeSettings{}, false);
  REQUIRE(choice.specs.size() == 1);
  CHECK(choice.specs[0].device == "eth1");
  REQUIRE(choice.limitations.size() == 1);
  CHECK_THAT(choice.limitations[0].why,
             ContainsSubstring("no port of an RDMA device can be read, so paths are probed over UDP"));

  ProbeSettings rdma;
  rdma.transport = TransportChoice::Rdma;
  const auto none = choose_endpoints(blocked, kInterfaces, rdma, false);
  CHECK(none.specs.empty());
  REQUIRE(none.limitations.size() == 1);
  CHECK_THAT(none.limitations[0].why, ContainsSubstring("can be read, so nothing is probed"));

  ProbeSettings other;
  other.devices = {"mlx5_1"};
  CHECK_THAT(choose_endpoints(blocked, kInterfaces, other, false).limitations.back().why,
             ContainsSubstring("no RDMA device is here"));
}

namespace {

RdmaRefusal refusal(const std::string& device, Error::Kind kind, std::string message) {
  RdmaRefusal out;
  out.spec.device = out.spec.rdma_device = device;
  out.spec.rdma = true;
  out.error = make_error(kind, std::move(message));
  return out;
}

}  // namespace

TEST_CASE(
    "endpoints: RDMA that is here but cannot be used gives way to UDP on its interface, and says what was tried, why "
    "and the way out",
    "[agent]") {
  const auto here = host({device("mlx5_0", model::PortState::Active)});
  std::vector<NetInterface> interfaces = kInterfaces;
  interfaces.push_back(interface("eth9", "192.168.0.2"));  // of management: RDMA says which one is of the fabric
  const auto choice = choose_endpoints(
      here, interfaces, ProbeSettings{}, true,
      {refusal("mlx5_0", Error::Kind::Permission, "RDMA device mlx5_0: cannot open /dev/infiniband/uverbs0")});
  REQUIRE(choice.specs.size() == 2);
  CHECK(choice.specs[0].rdma);  // tried again
  CHECK_FALSE(choice.specs[1].rdma);
  CHECK(choice.specs[1].device == "eth1");
  REQUIRE(choice.limitations.size() == 1);
  const model::Limitation& said = choice.limitations[0];
  CHECK(said.subject == "host:h1");
  CHECK(said.why ==
        "no RDMA device can be used, so paths are probed over UDP and RNICs are not: mlx5_0 port 1: RDMA device "
        "mlx5_0: cannot open /dev/infiniband/uverbs0");
  CHECK_THAT(said.how, ContainsSubstring("read and write access to /dev/infiniband/uverbs*"));

  // A port that names no interface (EFA, InfiniBand): those with hardware.
  auto nameless = here;
  nameless.devices[0].ports[0].netdev.clear();
  const auto other =
      choose_endpoints(nameless, kInterfaces, ProbeSettings{}, true,
                       {refusal("mlx5_0", Error::Kind::Unsupported, "mlx5_0 port 1: cannot create a UD queue pair")});
  REQUIRE(other.specs.size() == 2);
  CHECK(other.specs[1].device == "eth1");
  CHECK_THAT(other.limitations.at(0).why, ContainsSubstring(": mlx5_0 port 1: cannot create"));
  CHECK_THAT(other.limitations.at(0).how, ContainsSubstring("UD queue pairs"));
}

TEST_CASE("endpoints: transport rdma does not give way to UDP when RDMA cannot be used", "[agent]") {
  ProbeSettings settings;
  settings.transport = TransportChoice::Rdma;
  const auto choice = choose_endpoints(host({device("mlx5_0", model::PortState::Active)}), kInterfaces, settings, true,
                                       {refusal("mlx5_0", Error::Kind::Unsupported, "no UD")});
  REQUIRE(choice.specs.size() == 1);
  CHECK(choice.specs[0].rdma);
}

TEST_CASE("endpoints: many refusals are told in few words", "[agent]") {
  std::vector<RdmaRefusal> refused;
  for (int i = 0; i < 9; ++i)
    refused.push_back(refusal("mlx5_" + std::to_string(i), Error::Kind::Unsupported, "no UD"));
  const auto choice =
      choose_endpoints(host({device("mlx5_0", model::PortState::Active)}), kInterfaces, ProbeSettings{}, true, refused);
  CHECK_THAT(choice.limitations.at(0).why, ContainsSubstring("mlx5_3 port 1: no UD; and 5 more"));
}

TEST_CASE("endpoints: transport rdma never uses UDP, transport udp never RDMA", "[agent]") {
  ProbeSettings settings;
  settings.transport = TransportChoice::Rdma;
  CHECK(choose_endpoints(host({}), kInterfaces, settings, false).specs.empty());
  settings.transport = TransportChoice::Udp;
  const auto choice = choose_endpoints(host({device("rxe0", model::PortState::Active)}), kInterfaces, settings, false);
  REQUIRE(choice.specs.size() == 1);
  CHECK_FALSE(choice.specs[0].rdma);
  CHECK(choice.limitations.empty());
}

TEST_CASE("endpoints: interfaces may be named or given by address, any of 127.0.0.0/8 too", "[agent]") {
  ProbeSettings settings;
  settings.transport = TransportChoice::Udp;
  settings.interfaces = {"127.0.0.5", "docker0", "eth9", "10.0.1.77"};
  const auto choice = choose_endpoints(host({}), kInterfaces, settings, false);
  REQUIRE(choice.specs.size() == 2);
  CHECK(choice.specs[0].device == "lo");
  CHECK(choice.specs[0].address == "127.0.0.5");
  CHECK(choice.specs[1].device == "docker0");
  REQUIRE(choice.limitations.size() == 2);
  CHECK_THAT(choice.limitations[0].why, ContainsSubstring("eth9"));
  CHECK_THAT(choice.limitations[1].why, ContainsSubstring("10.0.1.77"));
}

TEST_CASE("endpoints: nothing to probe from is a limitation, never silence", "[agent]") {
  ProbeSettings settings;
  settings.transport = TransportChoice::Udp;
  const auto choice =
      choose_endpoints(host({}), {loopback(), interface("eth1", "10.0.1.2", true, false)}, settings, false);
  CHECK(choice.specs.empty());
  REQUIRE(choice.limitations.size() == 1);
  CHECK_THAT(choice.limitations[0].how, ContainsSubstring("probe.interfaces"));
}
