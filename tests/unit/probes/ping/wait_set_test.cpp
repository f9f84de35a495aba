#include "probes/ping/wait_set.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::probes;

namespace {

constexpr Nanos kLong = 600 * kSecond;  // a test that waits for it fails by its runner's deadline

Fd event(unsigned value) { return Fd(eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK)); }

}  // namespace

TEST_CASE("wait set: a time that has passed only looks", "[ping]") {
  WaitSet waits;
  REQUIRE(waits.open());
  const Fd quiet = event(0);
  waits.watch(quiet.get());
  CHECK(waits.wait(-kSecond).empty());
}

TEST_CASE("wait set: a wake from another thread ends the wait, and is no descriptor of the caller's", "[ping]") {
  WaitSet waits;
  REQUIRE(waits.open());
  std::thread other([&] { waits.wake(); });
  CHECK(waits.wait(kLong).empty());
  other.join();
}

TEST_CASE("wait set: a wake before the wait is not lost", "[ping]") {
  WaitSet waits;
  REQUIRE(waits.open());
  waits.wake();
  waits.wake();
  CHECK(waits.wait(kLong).empty());
  const Fd ready = event(1);
  waits.watch(ready.get());
  const auto seen = waits.wait(kLong);
  CHECK(std::vector<int>(seen.begin(), seen.end()) == std::vector<int>{ready.get()});
}

TEST_CASE("wait set: more ready descriptors than one wait tells come with the next", "[ping]") {
  WaitSet waits;
  REQUIRE(waits.open());
  std::vector<Fd> many;
  for (std::size_t i = 0; i < 2 * WaitSet::kMost; ++i) {
    many.push_back(event(1));
    waits.watch(many.back().get());
    waits.watch(many.back().get());  // twice is once
  }
  std::vector<int> told;
  for (int turn = 0; turn < 2; ++turn) {
    for (const int fd : waits.wait(kLong)) {
      told.push_back(fd);
      std::uint64_t value = 0;
      REQUIRE(::read(fd, &value, sizeof value) == sizeof value);
    }
  }
  CHECK(told.size() == many.size());
}
