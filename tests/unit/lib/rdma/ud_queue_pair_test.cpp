#include "lib/rdma/ud_queue_pair.h"

#include <cerrno>

#include "tests/unit/catch.h"
#include "tests/unit/lib/rdma/fake_verbs.h"

using namespace weft;
using namespace weft::rdma;
using weft::test::FakeVerbs;

namespace {

struct Fixture {
  FakeVerbs verbs;
  FakeClock clock;
  std::unique_ptr<Device> device;
  std::unique_ptr<CompletionQueue> queue;

  Result<std::unique_ptr<UdQueuePair>> create() {
    auto opened = Device::open(verbs.name);
    REQUIRE(opened);
    device = std::move(*opened);
    auto made = CompletionQueue::create(*device, 64, clock);
    REQUIRE(made);
    queue = std::move(*made);
    return UdQueuePair::create(*device, 1, *queue, {});
  }
};

}  // namespace

TEST_CASE("UD queue pair: a device without UD says device, port, type and what to do instead (perftest 105: EFA)",
          "[rdma]") {
  const int error = GENERATE(EOPNOTSUPP, ENOSYS);
  Fixture f;
  f.verbs.name = "efa_0";
  f.verbs.fails["create_qp"] = error;
  const auto pair = f.create();
  REQUIRE_FALSE(pair);
  CHECK(pair.error().kind == Error::Kind::Unsupported);
  CHECK_THAT(pair.error().message(), ContainsSubstring("efa_0 port 1: cannot create a UD queue pair") &&
                                         ContainsSubstring("does this device have UD?") &&
                                         ContainsSubstring("probe over UDP instead"));
}

TEST_CASE(
    "UD queue pair: qedr's EINVAL and iWARP mean no UD, and UDP is named as the way (rdma-core PR 1171, UCX 5148)",
    "[rdma]") {
  Fixture f;
  SECTION("qedr") {
    f.verbs.name = "qedr0";
    f.verbs.fails["create_qp"] = EINVAL;
  }
  SECTION("iWARP is not even asked") {
    f.verbs.name = "irdma0";
    f.verbs.iwarp = true;
  }
  const auto pair = f.create();
  REQUIRE_FALSE(pair);
  CHECK(pair.error().kind == Error::Kind::Unsupported);
  CHECK_THAT(pair.error().message(),
             ContainsSubstring(f.verbs.name + " port 1") && ContainsSubstring("probe over UDP instead"));
  CHECK(f.verbs.queue_pairs_asked.size() == (f.verbs.iwarp ? 0 : 1));
}

TEST_CASE("UD queue pair: an error that is not for want of UD is not taken for it", "[rdma]") {
  Fixture f;
  f.verbs.fails["create_qp"] = ENOMEM;
  const auto pair = f.create();
  REQUIRE_FALSE(pair);
  CHECK(pair.error().kind != Error::Kind::Unsupported);
  CHECK_THAT(pair.error().message(), !ContainsSubstring("UDP"));
}

TEST_CASE("UD queue pair: the step that fails on the way up is named, and the pair does not stay (perftest 393)",
          "[rdma]") {
  const std::string step = GENERATE("INIT", "RTR", "RTS");
  Fixture f;
  f.verbs.fails["modify_qp " + step] = EINVAL;
  const int before = f.verbs.alive();
  const auto pair = f.create();
  REQUIRE_FALSE(pair);
  CHECK_THAT(pair.error().message(), ContainsSubstring("mlx5_0 port 1") && ContainsSubstring("cannot go to " + step));
  f.queue.reset();
  f.device.reset();
  CHECK(f.verbs.alive() == before);
}

TEST_CASE("UD queue pair: full queues are transient, other refusals are not, and both name the port", "[rdma]") {
  Fixture f;
  auto pair = f.create();
  REQUIRE(pair);
  std::uint8_t byte = 0;
  const ibv_sge area{reinterpret_cast<std::uintptr_t>(&byte), 1, 0};
  ibv_ah handle{};
  for (const int error : {ENOMEM, EIO}) {
    f.verbs.fails["post_send"] = f.verbs.fails["post_recv"] = error;
    const auto sent = (*pair)->post_send(1, area, &handle, 33);
    const auto posted = (*pair)->post_receive(1, area);
    REQUIRE_FALSE(sent);
    REQUIRE_FALSE(posted);
    CHECK((sent.error().kind == Error::Kind::Transient) == (error == ENOMEM));
    CHECK((posted.error().kind == Error::Kind::Transient) == (error == ENOMEM));
    CHECK_THAT(sent.error().message(), ContainsSubstring("mlx5_0 port 1"));
    CHECK_THAT(posted.error().message(), ContainsSubstring("mlx5_0 port 1"));
  }
  f.verbs.fails.clear();
  REQUIRE((*pair)->post_send(1, area, &handle, 33));
  CHECK(f.verbs.sent.at(0).remote_queue_pair == 33);
  CHECK(f.verbs.sent.at(0).remote_key == kQueueKey);
}
