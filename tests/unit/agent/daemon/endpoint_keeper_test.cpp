#include "agent/daemon/endpoint_keeper.h"

#include "tests/unit/agent/daemon/fake_engine.h"
#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::agent;

namespace {

EndpointSpec spec(std::string device, bool ready = true) {
  EndpointSpec out;
  out.device = device;
  out.rdma = true;
  out.rdma_device = std::move(device);
  out.ready = ready;
  return out;
}

struct Rig {
  FakeClock clock;
  test::FakeThreads threads;
  std::map<std::string, test::FakeEngineState> devices;
  std::map<std::string, Error> open_errors;
  int changes = 0;
  EndpointKeeper keeper{KeeperOptions{},
                        "h1",
                        [this](const EndpointSpec& wanted) -> Result<std::unique_ptr<probes::Engine>> {
                          const auto error = open_errors.find(wanted.device);
                          if (error != open_errors.end()) return error->second;
                          return std::unique_ptr<probes::Engine>(
                              std::make_unique<test::FakeEngine>(devices[wanted.device], wanted.device));
                        },
                        threads.spawn(),
                        threads.post(),
                        clock};
  Rig() {
    keeper.on_change([this] { ++changes; });
  }
  void wait(Nanos by) {
    clock.advance(by);
    keeper.tick();
    threads.run_all();
  }
};

}  // namespace

TEST_CASE("devices: one that blocks in opening hides no other and is reported (SoftRoCE 28: the driver locks up)",
          "[agent]") {
  test::expect_log("opening the device has not returned");
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  REQUIRE(rig.threads.spawned.size() == 2);
  auto blocked = std::move(rig.threads.spawned.front());  // rxe0 hangs in the driver
  rig.threads.spawned.pop_front();
  rig.threads.run_all();
  REQUIRE(rig.keeper.endpoints().size() == 1);
  CHECK(rig.keeper.endpoints()[0].device == "rxe1");

  rig.wait(6 * kSecond);
  rig.wait(60 * kSecond);
  CHECK(rig.threads.spawned.empty());  // never a second call into a device that has not answered the first
  CHECK(rig.keeper.any_stuck());
  REQUIRE(rig.keeper.limitations().size() == 1);
  CHECK(rig.keeper.limitations()[0].subject == "rnic:h1/rxe0");

  blocked();
  rig.threads.run_all();
  CHECK(rig.keeper.endpoints().size() == 2);
  CHECK(rig.keeper.limitations().empty());
  CHECK_FALSE(rig.keeper.any_stuck());
}

TEST_CASE("devices: one that blocks in closing hides no other, is reported, and is opened again once it has returned",
          "[agent]") {
  test::expect_log("closing the device has not returned");
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  rig.threads.run_all();
  rig.keeper.device_gone("rxe0");
  REQUIRE(rig.threads.spawned.size() == 1);
  auto blocked = std::move(rig.threads.spawned.front());
  rig.threads.spawned.pop_front();
  rig.wait(6 * kSecond);
  rig.keeper.device_back("rxe0");
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  rig.wait(60 * kSecond);
  CHECK(rig.devices["rxe0"].opened == 1);  // never a second call into a device that has not answered the first
  CHECK(rig.keeper.any_stuck());
  CHECK_FALSE(rig.keeper.all_stuck());
  REQUIRE(rig.keeper.limitations().size() == 1);
  CHECK(rig.keeper.limitations()[0].subject == "rnic:h1/rxe0");
  CHECK_THAT(rig.keeper.limitations()[0].why, ContainsSubstring("closing the device has not returned"));
  REQUIRE(rig.keeper.endpoints().size() == 1);
  CHECK(rig.keeper.endpoints()[0].device == "rxe1");

  blocked();
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].open == 1);
  CHECK_FALSE(rig.keeper.any_stuck());
  CHECK(rig.keeper.limitations().empty());
}

TEST_CASE("devices: all are stuck only when every one is, in opening or in closing, and no longer once one returns",
          "[agent]") {
  test::expect_log("opening the device has not returned");
  test::expect_log("closing the device has not returned");
  Rig rig;
  CHECK_FALSE(rig.keeper.all_stuck());  // there is nothing to be stuck in
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  auto opening = std::move(rig.threads.spawned.front());
  rig.threads.spawned.pop_front();
  rig.wait(6 * kSecond);
  CHECK(rig.keeper.any_stuck());
  CHECK_FALSE(rig.keeper.all_stuck());
  rig.keeper.device_gone("rxe0");
  rig.threads.spawned.clear();  // its closing never returns
  CHECK_FALSE(rig.keeper.all_stuck());
  rig.wait(6 * kSecond);
  CHECK(rig.keeper.all_stuck());
  opening();
  rig.threads.run_all();
  CHECK_FALSE(rig.keeper.all_stuck());
  CHECK(rig.keeper.endpoints().size() == 1);
}

TEST_CASE("devices: one that fails to open is tried again with growing waits, logged once", "[agent]") {
  test::expect_log("no permission for uverbs0");
  Rig rig;
  rig.open_errors["rxe0"] = make_error(Error::Kind::Permission, "no permission for uverbs0");
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  CHECK(rig.keeper.limitations().at(0).why == "no permission for uverbs0");
  int tries = 0;
  for (int second = 0; second < 60; ++second) {
    rig.clock.advance(kSecond);
    rig.keeper.tick();
    tries += static_cast<int>(rig.threads.spawned.size());
    rig.threads.run_all();
  }
  CHECK(tries >= 4);
  CHECK(tries <= 8);
  CHECK(test::logged().size() == 1);

  rig.open_errors.clear();
  rig.wait(31 * kSecond);
  CHECK(rig.keeper.endpoints().size() == 1);
  CHECK(rig.keeper.limitations().empty());
}

TEST_CASE("devices: only when every one that was tried is refused again and again is RDMA refused", "[agent]") {
  using Use = RdmaVerdict::Use;
  test::expect_log("no permission");
  test::expect_log("no UD");
  test::expect_log("hello port taken");
  Rig rig;
  CHECK(rig.keeper.rdma_verdict().use == Use::Unknown);
  rig.open_errors["rxe0"] = make_error(Error::Kind::Permission, "no permission");
  rig.open_errors["rxe1"] = make_error(Error::Kind::Unsupported, "no UD");
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1"), spec("rxe2", false)});
  rig.threads.run_all();
  CHECK(rig.keeper.rdma_verdict().use == Use::Unknown);  // udev may be about to give the rights
  for (int second = 0; second < 5; ++second) rig.wait(kSecond);
  const RdmaVerdict verdict = rig.keeper.rdma_verdict();
  CHECK(verdict.use == Use::Refused);
  REQUIRE(verdict.refusals.size() == 2);  // the port that is down was not tried
  CHECK(verdict.refusals[0].error.message() == "no permission");

  // Neither a device that is going nor one that blocks in opening is usable for that.
  rig.open_errors["rxe0"] = make_error(Error::Kind::NotFound, "no such device");
  test::expect_log("no such device");
  rig.wait(30 * kSecond);
  CHECK(rig.keeper.rdma_verdict().use == Use::Refused);
  rig.open_errors["rxe0"] = make_error(Error::Kind::Exhausted, "hello port taken");
  rig.wait(31 * kSecond);
  CHECK(rig.keeper.rdma_verdict().use == Use::Usable);
  rig.open_errors.erase("rxe0");
  rig.wait(kSecond);  // not half a minute: it got further than before
  CHECK(rig.devices["rxe0"].open == 1);
  CHECK(rig.keeper.rdma_verdict().use == Use::Usable);

  // The one that worked has gone: those that are left cannot be used.
  rig.keeper.device_gone("rxe0");
  rig.threads.run_all();
  CHECK(rig.keeper.rdma_verdict().use == Use::Refused);
}

TEST_CASE("devices: one that is added again is tried at once, whatever the wait", "[agent]") {
  test::expect_log("ib_uverbs is not loaded");
  Rig rig;
  rig.open_errors["rxe0"] = make_error(Error::Kind::Unsupported, "ib_uverbs is not loaded");
  rig.keeper.set_wanted({spec("rxe0")});
  for (int second = 0; second < 60; ++second) rig.wait(kSecond);
  rig.open_errors.clear();
  rig.keeper.device_back("rxe0");
  rig.keeper.tick();
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].open == 1);
}

TEST_CASE("devices: one that goes is let go at once, reported, and opened again when it is back", "[agent]") {
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  rig.threads.run_all();
  const int before = rig.changes;
  rig.keeper.device_gone("rxe0");
  CHECK(rig.changes > before);
  CHECK(rig.keeper.endpoints().size() == 1);
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].open == 0);
  CHECK(rig.devices["rxe1"].open == 1);
  CHECK(rig.keeper.limitations().at(0).why == "the device is gone");

  rig.wait(60 * kSecond);
  CHECK(rig.devices["rxe0"].opened == 1);  // not before the inventory has it again
  rig.keeper.set_wanted({spec("rxe1")});
  rig.keeper.set_wanted({spec("rxe0", false), spec("rxe1")});
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].opened == 1);  // there, but its port is not ACTIVE yet
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].opened == 2);
  CHECK(rig.devices["rxe1"].opened == 1);
}

TEST_CASE("devices: one that bounces for a day leaves nothing open, nothing told and its neighbour alone (rpingmesh 6)",
          "[agent]") {
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  rig.threads.run_all();
  constexpr int kBounces = 1000;
  for (int bounce = 1; bounce <= kBounces; ++bounce) {
    rig.keeper.device_gone("rxe0");
    // Now and then it is back before its engine is closed, or goes again before the new one has opened.
    if (bounce % 3 != 0) rig.threads.run_all();
    rig.keeper.set_wanted({spec("rxe1")});
    rig.wait(kSecond);
    rig.wait(40 * kSecond);
    rig.keeper.device_back("rxe0");
    rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
    if (bounce % 5 == 0) {
      rig.keeper.device_gone("rxe0");
      rig.keeper.device_back("rxe0");
      rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
    }
    rig.threads.run_all();
    rig.wait(40 * kSecond);
    INFO("bounce " << bounce);
    REQUIRE(rig.devices["rxe0"].open == 1);
    REQUIRE(rig.keeper.endpoints().size() == 2);
    REQUIRE(rig.keeper.limitations().empty());
    REQUIRE_FALSE(rig.keeper.any_stuck());
    REQUIRE(rig.threads.spawned.empty());
  }
  CHECK(rig.devices["rxe0"].opened >= kBounces);
  CHECK(rig.devices["rxe0"].opened <= 2 * kBounces);
  CHECK(rig.devices["rxe1"].opened == 1);
  CHECK(test::logged().empty());
  rig.keeper.close_all();
  rig.threads.run_all();
  CHECK(rig.keeper.all_closed());
  CHECK(rig.devices["rxe0"].open == 0);
}

TEST_CASE("devices: one that goes is not opened while sysfs still lists it, only when it is added again", "[agent]") {
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  rig.keeper.device_gone("rxe0");
  rig.threads.run_all();
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].opened == 1);
  rig.keeper.device_back("rxe0");
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].opened == 2);
}

TEST_CASE("devices: a removal that did not happen is forgotten after a while", "[agent]") {
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  rig.keeper.device_gone("rxe0");
  rig.threads.run_all();
  rig.clock.advance(20 * kSecond);
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].open == 1);
}

TEST_CASE("devices: one that goes while it is being opened is closed as soon as it arrives", "[agent]") {
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0")});
  rig.keeper.device_gone("rxe0");
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].opened == 1);
  CHECK(rig.devices["rxe0"].open == 0);
  CHECK(rig.keeper.endpoints().empty());
}

TEST_CASE("devices: an engine that stops by itself is closed and opened anew after a wait", "[agent]") {
  test::expect_log("poll: device removed");
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  rig.devices["rxe0"].failure = "poll: device removed";
  rig.keeper.tick();
  rig.devices["rxe0"].failure.clear();
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].open == 0);
  rig.wait(kSecond);
  CHECK(rig.devices["rxe0"].open == 1);
}

TEST_CASE("devices: a port that goes down keeps its engine, so that probing resumes with it", "[agent]") {
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  rig.keeper.set_wanted({spec("rxe0", false)});
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].open == 1);
  CHECK(rig.devices["rxe0"].opened == 1);
}

TEST_CASE("devices: targets and ports wanted reach an engine that opens later", "[agent]") {
  Rig rig;
  model::PlanTarget target;
  target.from_device = "rxe0";
  target.to = "h3/rxe0";
  rig.keeper.set_targets({{"rxe0", {target}}});
  rig.keeper.want_ports(12);
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].targets == std::vector<model::PlanTarget>{target});
  CHECK(rig.devices["rxe0"].ports_wanted == 12);
  CHECK(rig.devices["rxe1"].targets.empty());
  rig.keeper.set_targets({});
  CHECK(rig.devices["rxe0"].targets.empty());
}

TEST_CASE("devices: an engine with ready peers that sends nothing is opened anew, one without peers is not",
          "[agent]") {
  test::expect_log("the engine made no progress");
  Rig rig;
  model::PlanTarget target;
  target.to = "h3/rxe0";
  target.paths = {{0, 0, 10}};
  rig.keeper.set_targets({{"rxe0", {target}}, {"rxe1", {target}}});
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  rig.threads.run_all();
  rig.devices["rxe0"].peers = {{"h3/rxe0", probes::PeerState::Ready, "", 1, "rdma", "", {}}};
  rig.devices["rxe1"].peers = {{"h3/rxe0", probes::PeerState::Hello, "", 0, "rdma", "", {}}};
  for (int second = 0; second < 15; ++second) {
    rig.devices["rxe0"].stats.sent += 10;
    rig.keeper.collect();
    rig.wait(kSecond);
  }
  CHECK(rig.devices["rxe0"].opened == 1);
  for (int second = 0; second < 25; ++second) {
    rig.keeper.collect();
    rig.wait(kSecond);
  }
  CHECK(rig.devices["rxe0"].opened == 2);
  CHECK(rig.devices["rxe1"].opened == 1);
}

TEST_CASE("devices: on a host that is starved of CPU an engine without progress is left open", "[agent]") {
  test::expect_log("the engine made no progress");
  Rig rig;
  model::PlanTarget target;
  target.to = "h3/rxe0";
  target.paths = {{0, 0, 10}};
  rig.keeper.set_targets({{"rxe0", {target}}});
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  rig.devices["rxe0"].peers = {{"h3/rxe0", probes::PeerState::Ready, "", 1, "rdma", "", {}}};
  for (int second = 0; second < 60; ++second) {
    rig.keeper.collect(true);
    rig.wait(kSecond);
  }
  CHECK(rig.devices["rxe0"].opened == 1);
  // Nor is that time held against it afterwards.
  for (int second = 0; second < 15; ++second) {
    rig.keeper.collect();
    rig.wait(kSecond);
  }
  CHECK(rig.devices["rxe0"].opened == 1);
  for (int second = 0; second < 10; ++second) {
    rig.keeper.collect();
    rig.wait(kSecond);
  }
  CHECK(rig.devices["rxe0"].opened == 2);
}

TEST_CASE("devices: an endpoint no longer wanted is closed and forgotten", "[agent]") {
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0")});
  rig.threads.run_all();
  rig.keeper.set_wanted({});
  rig.threads.run_all();
  CHECK(rig.devices["rxe0"].open == 0);
  CHECK(rig.keeper.endpoints().empty());
  CHECK(rig.keeper.limitations().empty());
}

TEST_CASE("devices: new settings open every engine anew", "[agent]") {
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  rig.threads.run(rig.threads.spawned);  // opened, but the main loop has not heard
  rig.keeper.reopen_all([&rig](const EndpointSpec& wanted) -> Result<std::unique_ptr<probes::Engine>> {
    return std::unique_ptr<probes::Engine>(
        std::make_unique<test::FakeEngine>(rig.devices[wanted.device], wanted.device));
  });
  rig.threads.run_all();
  rig.wait(kSecond);
  CHECK(rig.devices["rxe0"].opened == 2);
  CHECK(rig.devices["rxe0"].open == 1);
  CHECK(rig.keeper.endpoints().size() == 2);
}

TEST_CASE("devices: stopping closes all and opens none", "[agent]") {
  Rig rig;
  rig.keeper.set_wanted({spec("rxe0"), spec("rxe1")});
  rig.threads.run_all();
  rig.keeper.close_all();
  CHECK_FALSE(rig.keeper.all_closed());
  rig.threads.run_all();
  rig.wait(60 * kSecond);
  CHECK(rig.keeper.all_closed());
  CHECK(rig.devices["rxe0"].open == 0);
  CHECK(rig.devices["rxe1"].open == 0);
}

TEST_CASE("devices: an answer that comes after the keeper is gone harms nobody", "[agent]") {
  FakeClock clock;
  test::FakeThreads threads;
  test::FakeEngineState device;
  {
    EndpointKeeper keeper(
        KeeperOptions{}, "h1",
        [&](const EndpointSpec& wanted) -> Result<std::unique_ptr<probes::Engine>> {
          return std::unique_ptr<probes::Engine>(std::make_unique<test::FakeEngine>(device, wanted.device));
        },
        threads.spawn(), threads.post(), clock);
    keeper.set_wanted({spec("rxe0")});
  }
  threads.run_all();
  CHECK(device.opened == 1);
  CHECK(device.open == 0);
}
