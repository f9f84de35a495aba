// The RDMA transport on a device that a test can make say anything: what is refused, in which words, and what a device
// that errs or lies does to the probes.
#include <poll.h>

#include <cerrno>

#include "lib/rdma/source_port.h"
#include "probes/rdma/rdma_transport.h"
#include "tests/unit/catch.h"
#include "tests/unit/lib/rdma/fake_verbs.h"

using namespace weft;
using namespace weft::probes;
using weft::test::FakeCompletion;
using weft::test::FakeVerbs;

namespace {

struct Recorder final : TransportEvents {
  std::vector<std::vector<std::uint8_t>> payloads;
  std::vector<Arrival> arrivals;
  std::vector<SendDone> done;
  void on_arrival(const Arrival& arrival) override {
    arrivals.push_back(arrival);
    payloads.emplace_back(arrival.payload.begin(), arrival.payload.end());
  }
  void on_send_done(const SendDone& one) override { done.push_back(one); }
};

const model::Gid kPeer = *model::Gid::parse("10.0.3.2");
constexpr std::uint8_t kClass = 0x6a;

struct Fixture {
  FakeVerbs verbs;
  FakeClock clock;
  RdmaTransportOptions options;
  std::unique_ptr<Transport> transport;
  Recorder events;

  Fixture() { options.clock = &clock; }
  Result<std::unique_ptr<Transport>> try_open() {
    options.device = verbs.name;
    return open_rdma_transport(options);
  }
  void open() {
    auto opened = try_open();
    if (!opened) FAIL(opened.error().message());
    transport = std::move(*opened);
  }
  std::string refused(Error::Kind kind) {
    const auto opened = try_open();
    REQUIRE_FALSE(opened);
    CHECK(opened.error().kind == kind);
    CHECK(verbs.alive() == 0);
    return opened.error().message();
  }
  Result<void> send(std::uint64_t cookie, std::size_t bytes = 100) {
    const std::vector<std::uint8_t> payload(bytes, 7);
    return transport->send(Role::Prober, 0, transport->source_ports(Role::Prober).at(0), {kPeer, 33}, kClass, payload,
                           cookie);
  }
  // Addresses are resolved by a thread of its own, which wakes the transport.
  template <typename Condition>
  void poll_until(const Condition& condition) {
    const SystemClock wall;
    const Nanos deadline = wall.monotonic_ns() + 20 * kSecond;
    for (bool polled = true; polled && !condition() && wall.monotonic_ns() < deadline;) {
      polled = transport->poll(events).has_value();
      std::vector<pollfd> fds;
      for (const int fd : transport->wait_fds()) fds.push_back({fd, POLLIN, 0});
      if (!condition()) (void)::poll(fds.data(), fds.size(), 5);
    }
    REQUIRE(condition());
  }
};

std::vector<std::uint8_t> ipv4_area(std::uint8_t tos, std::uint8_t hop_limit) {
  std::vector<std::uint8_t> area(40, 0xEE);
  const std::vector<std::uint8_t> header{0x45, tos, 0,  100, 0, 0, 0x40, 0, hop_limit, 17,
                                         0,    0,   10, 0,   3, 2, 10,   0, 1,         2};
  std::copy(header.begin(), header.end(), area.begin() + 20);
  std::uint32_t sum = 0;
  for (std::size_t i = 20; i < 40; i += 2) sum += static_cast<std::uint32_t>(area[i] << 8 | area[i + 1]);
  sum = (sum & 0xffff) + (sum >> 16);
  const auto check = static_cast<std::uint16_t>(~((sum & 0xffff) + (sum >> 16)));
  area[30] = static_cast<std::uint8_t>(check >> 8);
  area[31] = static_cast<std::uint8_t>(check);
  return area;
}

}  // namespace

TEST_CASE("RDMA transport: a wrong GID index names device, port, index and the table (SoftRoCE 47, 79: GID 0 hangs)",
          "[rdma]") {
  Fixture f;
  f.verbs.gids = {{0, "fe80::1", IBV_GID_TYPE_ROCE_V1}, {1, "10.0.1.2"}};
  f.options.gid_index = 5;
  CHECK_THAT(f.refused(Error::Kind::Invalid),
             ContainsSubstring("mlx5_0 port 1: GID index 5 is empty") && ContainsSubstring("1 10.0.1.2 RoCE v2"));
  f.options.gid_index = 0;
  CHECK_THAT(f.refused(Error::Kind::Invalid), ContainsSubstring("GID index 0 is of type RoCEv1"));
}

TEST_CASE("RDMA transport: a GID index past what an address handle can name is refused, never taken modulo 256",
          "[rdma]") {
  Fixture f;
  f.verbs.port.gid_tbl_len = 512;
  f.verbs.gids = {{1, "10.0.1.2"}, {257, "10.0.9.2"}};
  f.options.gid_index = 257;
  CHECK_THAT(f.refused(Error::Kind::Invalid), ContainsSubstring("mlx5_0 port 1: GID index 257"));
}

TEST_CASE("RDMA transport: a port that is down is said to be down, whatever its GIDs", "[rdma]") {
  Fixture f;
  f.verbs.port.state = IBV_PORT_DOWN;
  SECTION("with a GID") {}
  SECTION("without one") { f.verbs.gids.clear(); }
  CHECK_THAT(f.refused(Error::Kind::Transient),
             ContainsSubstring("mlx5_0 port 1: the port is DOWN") && ContainsSubstring("check the cable"));
}

TEST_CASE("RDMA transport: an active port without an address may get one, and says what is missing", "[rdma]") {
  Fixture f;
  f.verbs.gids.clear();
  CHECK_THAT(f.refused(Error::Kind::Transient), ContainsSubstring("mlx5_0 port 1: no RoCEv2 GID"));
}

TEST_CASE("RDMA transport: probes larger than the path MTU are refused, naming both (rdma-core 586)", "[rdma]") {
  Fixture f;
  f.verbs.port.active_mtu = IBV_MTU_512;
  CHECK_THAT(f.refused(Error::Kind::Invalid),
             ContainsSubstring("mlx5_0 port 1, GID 1 (10.0.1.2): cannot open queue pairs: a payload of 1024 bytes does "
                               "not fit the MTU of 512"));
  f.verbs.port.active_mtu = IBV_MTU_1024;
  f.open();
  const auto sent = f.send(1, 1025);
  REQUIRE_FALSE(sent);
  CHECK_THAT(sent.error().message(), ContainsSubstring("mlx5_0 port 1: a payload of 1025 bytes is over 1024"));
}

TEST_CASE(
    "RDMA transport: InfiniBand is refused in words, and a port that demands a global header says so (perftest "
    "393)",
    "[rdma]") {
  Fixture f;
  f.verbs.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  f.verbs.gids = {{0, "fe80::9803:9b03:0", IBV_GID_TYPE_IB}};
  const std::string plain = f.refused(Error::Kind::Unsupported);
  CHECK_THAT(plain, ContainsSubstring("mlx5_0 port 1: on InfiniBand") && ContainsSubstring("IPoIB") &&
                        !ContainsSubstring("GRH"));
  f.verbs.port.flags = IBV_QPF_GRH_REQUIRED;
  CHECK_THAT(f.refused(Error::Kind::Unsupported), ContainsSubstring("GRH"));
}

TEST_CASE("RDMA transport: whichever step of opening fails is named, and nothing is left behind (perftest PR 381)",
          "[rdma]") {
  const auto [call, error, want] = GENERATE(table<std::string, int, std::string>({
      {"open_device", EACCES, "cannot open /dev/infiniband/uverbs0"},
      {"query_port", EINVAL, "port 1: cannot query the port"},
      {"create_comp_channel", EMFILE, "cannot create a completion channel"},
      {"reg_mr", ENOMEM, "raise the locked memory limit"},
      {"create_qp", EOPNOTSUPP, "does this device have UD?"},
      {"modify_qp RTR", EINVAL, "cannot go to RTR"},
      {"post_recv", EIO, "cannot post a receive buffer"},
  }));
  Fixture f;
  f.verbs.fails[call] = error;
  const auto opened = f.try_open();
  REQUIRE_FALSE(opened);
  CHECK_THAT(opened.error().message(), ContainsSubstring("mlx5_0") && ContainsSubstring(want));
  CHECK(f.verbs.alive() == 0);
}

TEST_CASE(
    "RDMA transport: packets leave with hop limit 64, a global header and the class asked for (rdma-core PR "
    "1637, perftest 393)",
    "[rdma]") {
  Fixture f;
  f.open();
  REQUIRE(f.send(1));
  f.poll_until([&] { return f.events.done.size() == 1; });
  const auto asked = f.verbs.handles_asked();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].is_global == 1);
  CHECK(asked[0].grh.hop_limit == 64);
  CHECK(asked[0].grh.sgid_index == 1);
  CHECK(asked[0].grh.traffic_class == kClass);
  CHECK(asked[0].port_num == 1);
  // The flow label decides the source port, and the same one each time (perftest PR 224, 279).
  CHECK(rdma::source_port_of_flow_label(asked[0].grh.flow_label) == f.transport->source_ports(Role::Prober).at(0));
  CHECK(f.events.done[0].ok);
}

TEST_CASE(
    "RDMA transport: an address that cannot be resolved is a local error with device, port and both GIDs, and "
    "blocks nothing (SoftRoCE 22)",
    "[rdma]") {
  Fixture f;
  f.verbs.fails["create_ah"] = ENETUNREACH;
  f.open();
  REQUIRE(f.send(1));
  f.poll_until([&] { return f.events.done.size() == 1; });
  CHECK_FALSE(f.events.done[0].ok);
  CHECK_THAT(f.events.done[0].error, ContainsSubstring("mlx5_0 port 1: cannot make an address handle") &&
                                         ContainsSubstring("from GID 10.0.1.2 (index 1) to GID 10.0.3.2") &&
                                         ContainsSubstring("no route"));
  CHECK(f.verbs.sent.empty());
  // The next one is told at once, and when the route is there it goes.
  CHECK_FALSE(f.send(2));
  f.verbs.fails.clear();
  f.clock.advance(3 * kSecond);
  REQUIRE(f.send(3));
  f.poll_until([&] { return f.events.done.size() == 2; });
  CHECK(f.events.done[1].ok);
}

TEST_CASE("RDMA transport: a queue pair in error is a local error in words, and comes back by itself (SoftRoCE 28, 61)",
          "[rdma]") {
  Fixture f;
  f.open();
  const auto pair = f.verbs.queue_pairs().at(0);
  const std::size_t buffers = f.verbs.posted_receives(pair);
  REQUIRE(f.send(1));
  f.poll_until([&] { return f.events.done.size() == 1; });
  f.verbs.send_status = IBV_WC_RETRY_EXC_ERR;
  REQUIRE(f.send(2));
  f.poll_until([&] { return f.events.done.size() == 2; });
  CHECK_FALSE(f.events.done[1].ok);
  CHECK(f.events.done[1].cookie == 2);
  CHECK_THAT(f.events.done[1].error,
             ContainsSubstring("mlx5_0 port 1, queue pair " + std::to_string(pair) + ": send failed"));
  f.verbs.send_status = IBV_WC_SUCCESS;
  f.clock.advance(kSecond);
  REQUIRE(f.transport->poll(f.events));
  REQUIRE(f.send(3));
  f.poll_until([&] { return f.events.done.size() == 3; });
  CHECK(f.events.done[2].ok);
  CHECK(f.verbs.posted_receives(pair) == buffers);
}

TEST_CASE("RDMA transport: sends whose completions never came end with the queue pair's restart (rpingmesh PR 29)",
          "[rdma]") {
  Fixture f;
  f.open();
  f.verbs.completes_sends = false;
  REQUIRE(f.send(1));
  f.poll_until([&] { return f.verbs.sent.size() == 1; });
  REQUIRE(f.send(2));
  f.verbs.completes_sends = true;
  f.verbs.send_status = IBV_WC_WR_FLUSH_ERR;
  REQUIRE(f.send(3));
  f.poll_until([&] { return !f.events.done.empty(); });
  f.clock.advance(kSecond);
  f.poll_until([&] { return f.events.done.size() == 3; });
  for (const SendDone& one : f.events.done) CHECK_FALSE(one.ok);
  CHECK_THAT(f.events.done[1].error, ContainsSubstring("send lost in a restart"));
}

TEST_CASE("RDMA transport: completions of requests never made do nothing (rdma-core PR 1512)", "[rdma]") {
  Fixture f;
  f.open();
  REQUIRE(f.send(1));
  f.poll_until([&] { return f.events.done.size() == 1; });
  // What was delivered once, as rxe's extended polling did, and ids that name no lane, slot or use.
  std::vector<std::uint64_t> ids{f.verbs.sent.at(0).work_id, 0, ~std::uint64_t{0}, std::uint64_t{1} << 63,
                                 std::uint64_t{77} << 48};
  for (const std::uint64_t id : ids) {
    for (const auto status : {IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR}) {
      FakeCompletion phantom;
      phantom.work_id = id;
      phantom.status = status;
      f.verbs.complete_all(phantom);
    }
  }
  REQUIRE(f.transport->poll(f.events));
  CHECK(f.events.done.size() == 1);
  CHECK(f.events.arrivals.empty());
  REQUIRE(f.send(2));
  f.poll_until([&] { return f.events.done.size() == 2; });
  CHECK(f.events.done[1].ok);
}

TEST_CASE("RDMA transport: no receive buffer leaks by errors, short packets or a flood (rpingmesh PR 30)", "[rdma]") {
  Fixture f;
  f.options.receive_buffers = 16;
  f.open();
  const auto pairs = f.verbs.queue_pairs();
  const std::uint32_t responder = pairs.back();
  REQUIRE(f.verbs.posted_receives(responder) == 16);
  // More than there are buffers between two polls: the rest is dropped, as on a NIC, and low water shows it.
  unsigned taken = 0;
  for (int i = 0; i < 40; ++i) taken += f.verbs.arrive(responder, ipv4_area(2, 62), {1, 2, 3}) ? 1 : 0;
  CHECK(taken == 16);
  REQUIRE(f.transport->poll(f.events));
  CHECK(f.events.arrivals.size() == 16);
  CHECK(f.transport->take_responder_low_water() == 0u);
  CHECK(f.verbs.posted_receives(responder) == 16);
  // Shorter than the area of the header.
  REQUIRE(f.verbs.arrive(responder, {1, 2, 3}, {}));
  REQUIRE(f.transport->poll(f.events));
  CHECK(f.events.arrivals.size() == 16);
  CHECK(f.verbs.posted_receives(responder) == 16);
  REQUIRE(f.verbs.arrive(responder, ipv4_area(2, 62), {1}, IBV_WC_LOC_PROT_ERR));
  REQUIRE(f.transport->poll(f.events));
  f.clock.advance(kSecond);
  REQUIRE(f.transport->poll(f.events));
  CHECK(f.verbs.posted_receives(responder) == 16);
}

TEST_CASE("RDMA transport: what arrives carries TOS and hop limit of a sound header, and of a damaged one nothing",
          "[rdma]") {
  Fixture f;
  f.open();
  const std::uint32_t responder = f.verbs.queue_pairs().back();
  auto damaged = ipv4_area(3, 62);
  damaged[21] ^= 1;
  REQUIRE(f.verbs.arrive(responder, ipv4_area(3, 62), {1, 2, 3}));
  REQUIRE(f.verbs.arrive(responder, damaged, {4}));
  REQUIRE(f.transport->poll(f.events));
  REQUIRE(f.events.arrivals.size() == 2);
  CHECK(f.events.arrivals[0].tos == 3);
  CHECK(f.events.arrivals[0].hop_limit == 62);
  CHECK(f.events.arrivals[0].source.gid == kPeer);
  CHECK(f.events.payloads[0] == std::vector<std::uint8_t>{1, 2, 3});
  CHECK_FALSE(f.events.arrivals[1].tos);
  CHECK_FALSE(f.events.arrivals[1].hop_limit);
}

TEST_CASE("RDMA transport: a device that is unplugged, dies or loses its GID ends it within a poll, and is let go",
          "[rdma]") {
  Fixture f;
  f.open();
  std::string want = "device is gone";
  SECTION("unplugged: rxe gives no event, its node goes first") { f.verbs.unplug(); }
  SECTION("it says it is dead") { f.verbs.raise(IBV_EVENT_DEVICE_FATAL); }
  SECTION("its address was taken away") {
    f.verbs.gids = {{1, "10.0.1.77"}};
    f.verbs.raise(IBV_EVENT_GID_CHANGE);
    want = "GID 10.0.1.2 at index 1 is gone";
  }
  f.clock.advance(kSecond);
  const auto polled = f.transport->poll(f.events);
  REQUIRE_FALSE(polled);
  CHECK(polled.error().kind == Error::Kind::NotFound);
  CHECK_THAT(polled.error().message(), ContainsSubstring("mlx5_0 port 1: " + want));
  f.transport.reset();
  CHECK(f.verbs.alive() == 0);
}

TEST_CASE("RDMA transport: on rxe each port is a queue pair, and past the bound the words say how many there are",
          "[rdma]") {
  Fixture f;
  f.verbs.make_rxe();
  f.options.prober_ports = 3;
  f.open();
  CHECK(f.transport->source_ports(Role::Prober).size() == 3);
  CHECK(f.transport->rung() == model::TimestampRung::Software);
  const auto more = f.transport->want_ports(Role::Prober, 1000);
  REQUIRE_FALSE(more);
  CHECK_THAT(more.error().message(), ContainsSubstring("rxe0 port 1: 1000 source ports asked for"));
  CHECK(f.transport->source_ports(Role::Prober).size() > 3);
}
