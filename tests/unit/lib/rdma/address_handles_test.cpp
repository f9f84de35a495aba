#include "lib/rdma/address_handles.h"

#include <atomic>
#include <future>
#include <memory>
#include <set>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::rdma;

namespace {

// Counts handles made and dropped; each is a distinct address that is never looked into.
struct Maker {
  std::mutex mutex;
  std::vector<AddressKey> made;
  std::set<ibv_ah*> alive;
  std::vector<std::unique_ptr<char>> cells;
  bool fail = false;
  std::atomic<unsigned> told = 0;

  Result<ibv_ah*> make(const AddressKey& key) {
    std::lock_guard lock(mutex);
    made.push_back(key);
    if (fail) return errno_error(110, "address of " + key.gid.to_string());
    cells.push_back(std::make_unique<char>());
    auto* handle = reinterpret_cast<ibv_ah*>(cells.back().get());
    alive.insert(handle);
    return handle;
  }
  void drop(ibv_ah* handle) {
    std::lock_guard lock(mutex);
    REQUIRE(alive.erase(handle) == 1);
  }
  std::unique_ptr<AddressHandles> cache(const Clock& clock, AddressLimits limits) {
    return std::make_unique<AddressHandles>([this](const AddressKey& key) { return make(key); },
                                            [this](ibv_ah* handle) { drop(handle); }, [this] { ++told; }, clock,
                                            limits);
  }
};

AddressKey key(std::uint8_t last, std::uint32_t label = 1, std::uint8_t traffic_class = 2) {
  AddressKey it;
  it.gid.raw[10] = it.gid.raw[11] = 0xFF;
  it.gid.raw[12] = 10;
  it.gid.raw[15] = last;
  it.flow_label = label;
  it.traffic_class = traffic_class;
  return it;
}

Result<ibv_ah*> ready(AddressHandles& cache, const AddressKey& it) {
  (void)cache.get(it);
  cache.settle();
  return cache.get(it);
}

}  // namespace

TEST_CASE("a failed address is not tried again before its pause, and each failure names the peer", "[rdma]") {
  FakeClock clock;
  Maker maker;
  maker.fail = true;
  auto cache = maker.cache(clock, AddressLimits{});
  CHECK(*cache->get(key(9)) == nullptr);
  cache->settle();
  for (int i = 0; i < 5; ++i) {
    const auto again = cache->get(key(9));
    REQUIRE_FALSE(again);
    CHECK_THAT(again.error().message(), ContainsSubstring("10.0.0.9"));
  }
  CHECK(maker.made.size() == 1);
  clock.advance(2 * kSecond);
  maker.fail = false;
  CHECK(ready(*cache, key(9)));
  CHECK(maker.made.size() == 2);
}

TEST_CASE(
    "a neighbour that never answers blocks only its own packets, and close does not hang behind the queue (SoftRoCE "
    "22)",
    "[rdma]") {
  FakeClock clock;
  std::promise<void> release;
  auto wait = release.get_future().share();
  std::atomic<int> calls = 0;
  AddressLimits limits;
  limits.max_pending = 2;
  {
    AddressHandles cache(
        [&](const AddressKey&) -> Result<ibv_ah*> {
          ++calls;
          wait.wait();
          return make_error(Error::Kind::Timeout, "no ARP answer");
        },
        [](ibv_ah*) {}, {}, clock, limits);
    unsigned waiting = 0, refused = 0;
    for (std::uint8_t last = 1; last < 50; ++last) {
      const auto handle = cache.get(key(last));
      ++(handle ? waiting : refused);
      if (handle) CHECK(*handle == nullptr);
      if (!handle) CHECK(handle.error().kind == Error::Kind::Exhausted);
    }
    CHECK(waiting >= 2);
    CHECK(refused >= 45);
    CHECK(cache.size() <= 4);  // the one being made and the bound of waiting ones
    release.set_value();
  }
  CHECK(calls <= 4);
}

TEST_CASE("renewal that fails keeps the old handle: a dead host must look like lost probes", "[rdma]") {
  FakeClock clock;
  Maker maker;
  auto cache = maker.cache(clock, AddressLimits{});
  const auto first = ready(*cache, key(1));
  REQUIRE(first);
  maker.fail = true;
  clock.advance(61 * kSecond);
  CHECK(*cache->get(key(1)) == *first);
  cache->settle();
  CHECK(maker.made.size() == 2);
  CHECK(*cache->get(key(1)) == *first);
  CHECK(maker.made.size() == 2);
}

TEST_CASE("a renewed handle replaces the old one, which is dropped only after it lingered", "[rdma]") {
  FakeClock clock;
  Maker maker;
  auto cache = maker.cache(clock, AddressLimits{});
  const auto first = ready(*cache, key(1));
  REQUIRE(first);
  clock.advance(61 * kSecond);
  const auto second = ready(*cache, key(1));
  REQUIRE(second);
  CHECK(*second != *first);
  cache->sweep();
  CHECK(maker.alive.size() == 2);
  clock.advance(kSecond);
  cache->sweep();
  CHECK(maker.alive.size() == 1);
  cache.reset();
  CHECK(maker.alive.empty());
  CHECK(maker.told == 2);
}

TEST_CASE("the cache keeps to its bound and the least used address goes", "[rdma]") {
  FakeClock clock;
  Maker maker;
  AddressLimits limits;
  limits.max_entries = 3;
  auto cache = maker.cache(clock, limits);
  for (std::uint8_t last = 1; last <= 3; ++last) {
    REQUIRE(ready(*cache, key(last)));
    clock.advance(kSecond);
  }
  REQUIRE(cache->get(key(1)));
  REQUIRE(ready(*cache, key(4)));
  CHECK(cache->size() == 3);
  const auto count = maker.made.size();
  CHECK(cache->get(key(1)));
  CHECK(maker.made.size() == count);
  (void)cache->get(key(2));
  cache->settle();
  CHECK(maker.made.size() == count + 1);
}

TEST_CASE("one handle serves a GID, label and class; another of any of them is another handle", "[rdma]") {
  FakeClock clock;
  Maker maker;
  auto cache = maker.cache(clock, AddressLimits{});
  const auto first = ready(*cache, key(1));
  REQUIRE(first);
  CHECK(*ready(*cache, key(1)) == *first);
  CHECK(*ready(*cache, key(1, 2)) != *first);
  CHECK(*ready(*cache, key(1, 1, 0x62)) != *first);
  CHECK(*ready(*cache, key(2)) != *first);
  CHECK(maker.made.size() == 4);
}
