#include "cli/host_name.h"

#include "tests/unit/catch.h"
#include "tests/unit/cli/blocking.h"

using namespace weft;
using namespace weft::cli;

namespace {

constexpr Nanos kShort = 100 * kMillisecond;
constexpr Nanos kLonger = 3 * kSecond;           // where others have to be done before it is over
constexpr Nanos kFarFromHanging = 20 * kSecond;  // a busy builder is slow; a hanging call never ends

LookUp hanging(const test::Blocked& blocked, const std::string& name) {
  return [gate = blocked.gate, name](const std::string& asked) -> Result<std::string> {
    if (asked == name) gate->pass();
    return std::string("10.0.3.2");
  };
}

}  // namespace

TEST_CASE("a name service that hangs is given up at the deadline, with the host named", "[cli]") {
  test::Blocked blocked;
  const SystemClock clock;
  const Nanos started = clock.monotonic_ns();
  const auto host = resolve_host("h3", kShort, hanging(blocked, "h3"));
  REQUIRE_FALSE(host);
  CHECK(host.error().kind == Error::Kind::Timeout);
  CHECK(host.error().message() == "host h3: the name service does not answer");
  CHECK(clock.monotonic_ns() - started < kFarFromHanging);
}

TEST_CASE("a name that hangs takes no time from the others, and the order is the one asked", "[cli]") {
  test::Blocked blocked;
  const auto hosts = resolve_hosts({"slow", "h3", "", "10.0.4.2"}, kLonger, hanging(blocked, "slow"));
  REQUIRE(hosts.size() == 4);
  CHECK(hosts[0].error().kind == Error::Kind::Timeout);
  REQUIRE(hosts[1]);
  CHECK(hosts[1]->name == "h3");
  CHECK(hosts[1]->address == "10.0.3.2");
  CHECK(hosts[2].error().kind == Error::Kind::Invalid);
  REQUIRE(hosts[3]);
  CHECK(hosts[3]->address == "10.0.4.2");
}

TEST_CASE("no host is at an address of nobody or of many, given or looked up", "[cli]") {
  const LookUp careless = [](const std::string&) -> Result<std::string> { return std::string("0.0.0.0"); };
  CHECK(resolve_host("224.0.0.1", kSecond, careless).error().message() == "'224.0.0.1' is no address of one host");
  CHECK(resolve_host("h9", kSecond, careless).error().message() == "host h9: '0.0.0.0' is no address of one host");
}

TEST_CASE("what the look-up says is passed on, and an address asks nobody", "[cli]") {
  const LookUp failing = [](const std::string& name) -> Result<std::string> {
    return make_error(Error::Kind::NotFound, "host " + name + ": unknown");
  };
  CHECK(resolve_host("h9", kSecond, failing).error().message() == "host h9: unknown");
  CHECK(resolve_host("fe80::1", kSecond, failing)->address == "fe80::1");
}
