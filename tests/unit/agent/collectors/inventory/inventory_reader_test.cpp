#include "agent/collectors/inventory/inventory_reader.h"

#include <algorithm>
#include <cerrno>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::inventory;

namespace {

std::string tree(const std::string& name) { return std::string(WEFT_FIXTURES) + "/sysfs/" + name; }

InventoryOptions options(const std::string& name) {
  InventoryOptions it;
  it.sys_root = tree(name);
  it.host = "h1";
  it.can_open = [](const std::string&) { return Result<void>{}; };
  return it;
}

model::Inventory read(const std::string& name) { return read_inventory(SystemFiles{}, options(name)); }

const model::Limitation* about(const model::Inventory& inventory, const std::string& subject, const std::string& why) {
  for (const auto& it : inventory.limitations)
    if (it.subject == subject && it.why.find(why) != std::string::npos) return &it;
  return nullptr;
}

}  // namespace

TEST_CASE("a host without RDMA is an inventory that says how to get it, not an error", "[inventory]") {
  const auto inventory = read("no_rdma");
  CHECK(inventory.devices.empty());
  const auto* limitation = about(inventory, "host:h1", "no RDMA");
  REQUIRE(limitation);
  CHECK_THAT(limitation->how, ContainsSubstring("modprobe"));
}

TEST_CASE("a class folder that cannot be listed is told apart from one that is not there", "[inventory]") {
  FailingFiles files;
  files.failures[tree("rxe") + "/class/infiniband"] = EACCES;
  const auto inventory = read_inventory(files, options("rxe"));
  CHECK(inventory.devices.empty());
  const auto* limitation = about(inventory, "host:h1", "cannot be listed");
  REQUIRE(limitation);
  CHECK_THAT(limitation->why, ContainsSubstring("Permission denied"));
}

TEST_CASE("each value that cannot be read leaves only itself absent", "[inventory]") {
  const int error = GENERATE(EACCES, EINVAL, EIO, ENOENT);
  const auto whole = read("mlx5");
  const std::string device = tree("mlx5") + "/class/infiniband/mlx5_3";
  for (const std::string file : {"/node_guid", "/fw_ver", "/ports/1/state", "/ports/1/rate", "/ports/1/link_layer",
                                 "/ports/1/lid", "/ports/1/gids/1", "/ports/1/gid_attrs/types/1", "/node_type"}) {
    FailingFiles files;
    files.failures[device + file] = error;
    INFO(file << " errno " << error);
    const auto inventory = read_inventory(files, options("mlx5"));
    REQUIRE(inventory.devices.size() == 8);
    for (std::size_t i = 0; i < 8; ++i)
      if (i != 3) CHECK(inventory.devices[i] == whole.devices[i]);
    const auto& hurt = inventory.devices[3];
    CHECK(hurt.driver == "mlx5_core");
    REQUIRE(hurt.ports.size() == 1);
    CHECK(hurt.node_guid.empty() == (file == "/node_guid"));
    CHECK(hurt.firmware.empty() == (file == "/fw_ver"));
    CHECK(hurt.ports[0].rate_bits_per_s.has_value() == (file != "/ports/1/rate"));
    CHECK((hurt.ports[0].state == model::PortState::Active) == (file != "/ports/1/state"));
    CHECK(hurt.ports[0].gids.size() == (file == "/ports/1/gids/1" ? 3 : 4));
    const bool told = about(inventory, "rnic:h1/mlx5_3", "cannot be read") != nullptr ||
                      about(inventory, "port:h1/mlx5_3/1", "cannot be read") != nullptr;
    CHECK(told == (error == EACCES || error == EIO));
  }
}

TEST_CASE("a device whose ports cannot be listed hides no other", "[inventory]") {
  FailingFiles files;
  files.failures[tree("mlx5") + "/class/infiniband/mlx5_0/ports"] = EIO;
  const auto inventory = read_inventory(files, options("mlx5"));
  REQUIRE(inventory.devices.size() == 8);
  CHECK(inventory.devices[0].ports.empty());
  CHECK(inventory.devices[1].ports.size() == 1);
  CHECK(about(inventory, "rnic:h1/mlx5_0", "ports cannot be listed"));
}

TEST_CASE("a device node without permission, or missing, is named with the way out", "[inventory]") {
  auto it = options("rxe");
  it.can_open = [](const std::string& path) -> Result<void> { return errno_error(EACCES, "open " + path); };
  const auto refused = read_inventory(SystemFiles{}, it);
  const auto* limitation = about(refused, "rnic:h1/rxe0", "no permission");
  REQUIRE(limitation);
  CHECK_THAT(limitation->how, ContainsSubstring("/dev/infiniband/uverbs0"));
  it.can_open = [](const std::string& path) -> Result<void> { return errno_error(ENOENT, "open " + path); };
  CHECK(about(read_inventory(SystemFiles{}, it), "rnic:h1/rxe0", "does not exist"));
  FailingFiles files;
  files.failures[tree("rxe") + "/class/infiniband_verbs"] = ENOENT;
  CHECK(about(read_inventory(files, options("rxe")), "rnic:h1/rxe0", "ib_uverbs"));
}

TEST_CASE("a port that is down and a port with no RoCEv2 GID are told, with the step to take", "[inventory]") {
  const auto mlx4 = read("mlx4");
  CHECK(about(mlx4, "port:h1/mlx4_0/2", "DOWN"));
  CHECK_FALSE(about(mlx4, "port:h1/mlx4_0/1", "DOWN"));
  FailingFiles files;
  for (const std::string slot : {"0", "1"})
    files.failures[tree("rxe") + "/class/infiniband/rxe0/ports/1/gids/" + slot] = ENOENT;
  const auto rxe = read_inventory(files, options("rxe"));
  const auto* limitation = about(rxe, "port:h1/rxe0/1", "no RoCEv2 GID");
  REQUIRE(limitation);
  CHECK_THAT(limitation->how, ContainsSubstring("eth0"));
}

TEST_CASE("an iWARP device is named as unable to do UD (rdma-core PR 1171, UCX 5148)", "[inventory]") {
  const auto inventory = read("irdma");
  REQUIRE(inventory.devices.size() == 1);
  CHECK(inventory.devices[0].driver == "ice");
  CHECK(about(inventory, "rnic:h1/irdma0", "iWARP"));
}

TEST_CASE("InfiniBand is told apart from Ethernet, with LID and GID type", "[inventory]") {
  const auto inventory = read("mlx4");
  REQUIRE(inventory.devices.size() == 1);
  const auto& ports = inventory.devices[0].ports;
  REQUIRE(ports.size() == 2);
  CHECK(ports[0].link_layer == model::LinkLayer::InfiniBand);
  CHECK(ports[0].lid == 0x1b);
  CHECK_FALSE(ports[1].lid);
  CHECK(ports[0].rate_bits_per_s == 40'000'000'000u);
  CHECK_FALSE(ports[0].active_mtu_bytes);
  REQUIRE(ports[0].gids.size() == 1);
  CHECK(ports[0].gids[0].type == model::GidType::InfiniBand);
  CHECK(about(inventory, "port:h1/mlx4_0/1", "no IP header"));
}

TEST_CASE("eight 400G ports are read whole, and nothing is missing there", "[inventory]") {
  const auto inventory = read("mlx5");
  REQUIRE(inventory.devices.size() == 8);
  CHECK(inventory.limitations.empty());
  const auto& device = inventory.devices[5];
  CHECK(device.name == "mlx5_5");
  CHECK(device.driver == "mlx5_core");
  CHECK(device.firmware == "28.39.1002");
  CHECK(device.node_guid == "a088:c203:0015:0001");
  REQUIRE(device.ports.size() == 1);
  const auto& port = device.ports[0];
  CHECK(port.state == model::PortState::Active);
  CHECK(port.rate_bits_per_s == 400'000'000'000u);
  CHECK(port.active_mtu_bytes == 4096);
  CHECK(port.netdev == "ens5np0");
  REQUIRE(port.gids.size() == 4);
  CHECK(port.gids[3].gid.to_string() == "10.1.5.7");
  CHECK(port.gids[3].type == model::GidType::RoceV2);
  CHECK(port.gids[2].type == model::GidType::RoceV1);
}

TEST_CASE("rxe is known by its parent interface, and bnxt by its bus driver", "[inventory]") {
  const auto rxe = read("rxe");
  REQUIRE(rxe.devices.size() == 1);
  CHECK(rxe.limitations.empty());
  CHECK(rxe.devices[0].driver == "rxe");
  CHECK(rxe.devices[0].ports[0].netdev == "eth0");
  CHECK(rxe.devices[0].ports[0].active_mtu_bytes == 1024);
  CHECK(rxe.devices[0].ports[0].rate_bits_per_s == 2'500'000'000u);
  CHECK(rxe.devices[0].ports[0].gids.size() == 2);
  const auto bnxt = read("bnxt");
  REQUIRE(bnxt.devices.size() == 1);
  CHECK(bnxt.devices[0].driver == "bnxt_en");
  CHECK(bnxt.devices[0].ports[0].active_mtu_bytes == 2048);
}

TEST_CASE("rates are read to the bit, and anything else is absent, never 0", "[inventory]") {
  for (const char* text : {"", "0 Gb/sec (4X SDR)", "fast", "400", "-1 Gb/sec", "400 Gb/s", "1.25 Gb/sec", "1. Gb/sec",
                           ".5 Gb/sec", "99999999999 Gb/sec (4X)", "400 Gb/secX"})
    CHECK_FALSE(parse_rate_bits_per_s(text));
  CHECK(parse_rate_bits_per_s("2.5 Gb/sec (1X SDR)") == 2'500'000'000u);
  CHECK(parse_rate_bits_per_s("200 Gb/sec (4X HDR)") == 200'000'000'000u);
  CHECK(parse_rate_bits_per_s("400 Gb/sec") == 400'000'000'000u);
}

TEST_CASE("port states outside the known ones are unknown", "[inventory]") {
  for (const char* text : {"", "ACTIVE", "9: NEW", "-1: X", "4x"})
    CHECK(parse_port_state(text) == model::PortState::Unknown);
  CHECK(parse_port_state("1: DOWN") == model::PortState::Down);
  CHECK(parse_port_state("5: ACTIVE_DEFER") == model::PortState::ActiveDefer);
}

TEST_CASE("the RoCE MTU leaves room for the headers of the interface's MTU", "[inventory]") {
  CHECK_FALSE(roce_mtu_bytes(300));
  CHECK(roce_mtu_bytes(1500) == 1024);
  CHECK(roce_mtu_bytes(4203) == 2048);
  CHECK(roce_mtu_bytes(4204) == 4096);
}

namespace {

// A port with 1,024 GID slots, of which the given ones hold an address.
struct ManySlots final : FileReader {
  std::set<unsigned> used;
  mutable unsigned slots_read = 0;
  SystemFiles real;
  const std::string gids = tree("rxe") + "/class/infiniband/rxe0/ports/1/gids";

  Result<std::string> read(const std::string& path, std::size_t limit) const override {
    const std::string types = tree("rxe") + "/class/infiniband/rxe0/ports/1/gid_attrs/types/";
    if (path.starts_with(types)) return std::string("RoCE v2\n");
    if (!path.starts_with(gids + "/")) return real.read(path, limit);
    ++slots_read;
    const auto index = static_cast<unsigned>(std::stoul(path.substr(gids.size() + 1)));
    if (index >= 1024) return errno_error(ENOENT, path);
    const std::string last = std::to_string(1000 + index);
    return (used.count(index) == 0 ? "0000:0000:0000:0000:0000:0000:0000:0000"
                                   : "fe80:0000:0000:0000:0000:0000:0000:" + last) +
           std::string("\n");
  }
  Result<std::vector<std::string>> list(const std::string& path) const override {
    if (path != gids) return real.list(path);
    std::vector<std::string> names;
    for (unsigned i = 0; i < 1024; ++i) names.push_back(std::to_string(i));
    return names;
  }
  Result<std::string> read_link(const std::string& path) const override { return real.read_link(path); }
};

std::set<unsigned> slots_of(const model::Inventory& inventory) {
  std::set<unsigned> out;
  for (const auto& entry : inventory.devices.at(0).ports.at(0).gids) out.insert(entry.index);
  return out;
}

}  // namespace

TEST_CASE("of 1,024 GID slots only those in use and the lowest free ones are read again", "[inventory]") {
  ManySlots files;
  files.used = {0, 1, 700};
  GidMemory memory;
  InventoryOptions it = options("rxe");
  it.gids = &memory;
  CHECK(slots_of(read_inventory(files, it)) == files.used);
  CHECK(files.slots_read == 1024);
  files.slots_read = 0;
  CHECK(slots_of(read_inventory(files, it)) == files.used);
  CHECK(files.slots_read <= 3 + GidMemory::kFreeSlots);

  files.used = {0, 2, 3, 4, 5};  // one went, some came where the kernel puts them
  CHECK(slots_of(read_inventory(files, it)) == files.used);
}

TEST_CASE("a GID in a slot where none is expected is found by the next scan of all", "[inventory]") {
  ManySlots files;
  files.used = {0};
  GidMemory memory;
  InventoryOptions it = options("rxe");
  it.gids = &memory;
  read_inventory(files, it);
  files.used = {0, 900};
  unsigned reads = 1;
  while (slots_of(read_inventory(files, it)) != files.used) REQUIRE(++reads < GidMemory::kReadsBetweenScans + 1);
  CHECK(reads > 1);
}
