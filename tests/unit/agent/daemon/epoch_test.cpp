#include "agent/daemon/epoch.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/unit/catch.h"

using namespace weft;
using weft::agent::next_epoch;

namespace {

struct StateDir {
  StateDir() {
    char name[] = "/tmp/weft-state-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~StateDir() { std::filesystem::remove_all(path); }
  std::string path;
};

}  // namespace

TEST_CASE("epoch: without a state folder the clock decides, and the reason is said", "[agent]") {
  const FakeClock clock;
  std::string problem;
  CHECK(next_epoch(SystemFiles(), "/nonexistent/state", clock, problem) == static_cast<std::uint64_t>(clock.wall_ns()));
  CHECK_THAT(problem, ContainsSubstring("/nonexistent/state/epoch"));
}

TEST_CASE("epoch: it rises also when the wall clock was set back a day", "[agent]") {
  const StateDir dir;
  FakeClock clock;
  std::string problem;
  const std::uint64_t first = next_epoch(SystemFiles(), dir.path, clock, problem);
  CHECK(problem.empty());
  clock.step_wall(-86'400 * kSecond);
  const std::uint64_t second = next_epoch(SystemFiles(), dir.path, clock, problem);
  CHECK(second > first);
  clock.step_wall(2 * 86'400 * kSecond);
  CHECK(next_epoch(SystemFiles(), dir.path, clock, problem) > second);
}

TEST_CASE("epoch: a torn or foreign state file does not stop the start", "[agent]") {
  const StateDir dir;
  std::ofstream(dir.path + "/epoch") << "18446744073709551615garbage";
  const FakeClock clock;
  std::string problem;
  CHECK(next_epoch(SystemFiles(), dir.path, clock, problem) == static_cast<std::uint64_t>(clock.wall_ns()));
}
