#include "lib/rdma/device.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/catch.h"
#include "tests/unit/lib/rdma/fake_verbs.h"

using namespace weft;
using namespace weft::rdma;
using weft::test::FakeVerbs;

TEST_CASE("device: one that does not exist is named, with those there are", "[rdma]") {
  FakeVerbs verbs;
  const auto other = Device::open("mlx9_9");
  REQUIRE_FALSE(other);
  CHECK(other.error().kind == Error::Kind::NotFound);
  CHECK_THAT(other.error().message(), ContainsSubstring("mlx9_9") && ContainsSubstring("this host has: mlx5_0"));
  verbs.present = false;
  CHECK_FALSE(Device::open("mlx5_0"));
  CHECK(verbs.alive() == 0);
}

TEST_CASE("device: one that the kernel has and libibverbs does not list says what to install, not that it is gone",
          "[rdma]") {
  FakeVerbs verbs;
  verbs.present = GENERATE(true, false);  // with and without another that is listed
  const std::filesystem::path root = verbs.folder();
  const DeviceRoots roots{root / "sys", root / "dev"};
  const auto error = [&] {
    const auto device = Device::open("mlx5_1", roots);
    REQUIRE_FALSE(device);
    return device.error();
  };
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
  CHECK(error().kind == Error::Kind::NotFound);
  write("sys/class/infiniband/mlx5_1/node_type", "1: CA\n");
  CHECK(error().kind == Error::Kind::NotFound);  // its node may come, or has just gone

  write("sys/class/infiniband_verbs/uverbs1/ibdev", "mlx5_1\n");
  CHECK(error().kind == Error::Kind::Unsupported);
  CHECK_THAT(error().message(), ContainsSubstring("mlx5_1") && ContainsSubstring("container") &&
                                    ContainsSubstring(roots.dev + "/infiniband/uverbs1 does not exist"));

  write("dev/infiniband/uverbs1", "");
  CHECK(error().kind == Error::Kind::Unsupported);
  CHECK_THAT(error().message(), ContainsSubstring("mlx5_1") && ContainsSubstring("no provider library") &&
                                    ContainsSubstring("install ibverbs-providers"));

  std::filesystem::remove_all(root / "sys/class/infiniband_verbs");
  CHECK(error().kind == Error::Kind::Unsupported);
  CHECK_THAT(error().message(), ContainsSubstring("mlx5_1") && ContainsSubstring("modprobe ib_uverbs"));
}

TEST_CASE("device: a node that may not be opened says which, and what to do", "[rdma]") {
  FakeVerbs verbs;
  verbs.fails["open_device"] = EACCES;
  const auto device = Device::open("mlx5_0");
  REQUIRE_FALSE(device);
  CHECK(device.error().kind == Error::Kind::Permission);
  CHECK_THAT(device.error().message(), ContainsSubstring("mlx5_0") && ContainsSubstring("/dev/infiniband/uverbs0") &&
                                           ContainsSubstring("read and write access"));
}

TEST_CASE("device: whichever step of opening fails is named, and nothing stays open (perftest 64)", "[rdma]") {
  const auto [call, step] = GENERATE(table<std::string, std::string>({
      {"query_device", "cannot query its attributes"},
      {"alloc_pd", "cannot allocate a domain"},
  }));
  FakeVerbs verbs;
  verbs.fails[call] = EIO;
  const auto device = Device::open("mlx5_0");
  REQUIRE_FALSE(device);
  CHECK_THAT(device.error().message(), ContainsSubstring("mlx5_0: " + step));
  CHECK(verbs.alive() == 0);
}

TEST_CASE("device: a GID slot that cannot be read hides no other", "[rdma]") {
  FakeVerbs verbs;
  verbs.gids = {{0, "fe80::1"}, {1, "10.0.1.2"}, {3, "10.0.1.3"}};
  verbs.fails["query_gid 1"] = EIO;
  auto device = Device::open("mlx5_0");
  REQUIRE(device);
  const auto info = (*device)->query_port(1);
  REQUIRE(info);
  REQUIRE(info->port.gids.size() == 2);
  CHECK(info->port.gids[1].gid.to_string() == "10.0.1.3");
  CHECK_THAT((*device)->query_gid(1, 1).error().message(), ContainsSubstring("mlx5_0 port 1: cannot read GID index 1"));
  CHECK((*device)->query_gid(1, 2).error().kind == Error::Kind::NoData);
}

TEST_CASE("device: a port that is not there, or does not answer, is an error that names it (perftest 64)", "[rdma]") {
  FakeVerbs verbs;
  auto device = Device::open("mlx5_0");
  REQUIRE(device);
  for (const unsigned port : {0u, 2u, 255u}) {
    const auto info = (*device)->query_port(port);
    REQUIRE_FALSE(info);
    CHECK_THAT(info.error().message(),
               ContainsSubstring("mlx5_0 port " + std::to_string(port)) && ContainsSubstring("1 port(s)"));
  }
  verbs.fails["query_port"] = EINVAL;
  CHECK_THAT((*device)->query_port(1).error().message(), ContainsSubstring("mlx5_0 port 1: cannot query the port"));
}

TEST_CASE("device: what the port's flags say of the global header is kept (perftest 393: GRH_REQUIRED)", "[rdma]") {
  FakeVerbs verbs;
  auto device = Device::open("mlx5_0");
  REQUIRE(device);
  CHECK((*device)->query_port(1)->grh_required);  // RoCE has no other header
  verbs.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  CHECK_FALSE((*device)->query_port(1)->grh_required);
  verbs.port.flags = IBV_QPF_GRH_REQUIRED;
  CHECK((*device)->query_port(1)->grh_required);
}

TEST_CASE("device: numbers outside what verbs knows are absent or unknown, never a wrong value nor undefined behaviour",
          "[rdma]") {
  FakeVerbs verbs;
  auto device = Device::open("mlx5_0");
  REQUIRE(device);
  verbs.port.active_mtu = static_cast<ibv_mtu>(9);
  verbs.port.state = static_cast<ibv_port_state>(77);
  verbs.port.link_layer = 9;
  verbs.port.gid_tbl_len = -5;
  const auto info = (*device)->query_port(1);
  REQUIRE(info);
  CHECK_FALSE(info->port.active_mtu_bytes);
  CHECK(info->port.state == model::PortState::Unknown);
  CHECK(info->port.link_layer == model::LinkLayer::Unknown);
  CHECK(info->port.gids.empty());
  CHECK_FALSE(info->port.lid);
}

TEST_CASE("device: events of the device are told apart, and one that is unplugged is seen to be gone", "[rdma]") {
  FakeVerbs verbs;
  auto device = Device::open("mlx5_0");
  REQUIRE(device);
  CHECK_FALSE((*device)->next_event());
  verbs.raise(IBV_EVENT_GID_CHANGE);
  verbs.raise(IBV_EVENT_PORT_ERR);
  verbs.raise(99);
  verbs.raise(IBV_EVENT_DEVICE_FATAL);
  CHECK((*device)->next_event()->kind == DeviceEvent::GidsChanged);
  CHECK((*device)->next_event()->kind == DeviceEvent::Other);
  CHECK((*device)->next_event()->kind == DeviceEvent::Other);
  CHECK((*device)->next_event()->kind == DeviceEvent::Gone);
  CHECK((*device)->is_present());
  verbs.unplug();
  CHECK_FALSE((*device)->is_present());
  device->reset();
  CHECK(verbs.alive() == 0);
}
