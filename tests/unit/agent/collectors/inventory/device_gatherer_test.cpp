#include "agent/collectors/inventory/device_gatherer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/unit/catch.h"
#include "tests/unit/log_capture.h"

using namespace weft;
using namespace weft::inventory;

namespace {

// What happens on other threads, so that the test waits for it and not for time.
struct Events {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t count = 0;
  void happened() {  // mutex held
    ++count;
    changed.notify_all();
  }
};

// The real file system, but reads of paths with one of these texts in them wait until they are let go.
class BlockingFiles final : public FileReader {
 public:
  explicit BlockingFiles(std::shared_ptr<Events> events) : events_(std::move(events)) {}
  void block(std::set<std::string> texts) {
    std::lock_guard lock(events_->mutex);
    texts_ = std::move(texts);
    events_->happened();
  }
  std::size_t blocked() const {
    std::lock_guard lock(events_->mutex);
    return blocked_;
  }
  Result<std::string> read(const std::string& path, std::size_t limit) const override {
    wait(path);
    return files_.read(path, limit);
  }
  Result<std::vector<std::string>> list(const std::string& path) const override {
    wait(path);
    return files_.list(path);
  }
  Result<std::string> read_link(const std::string& path) const override { return files_.read_link(path); }

 private:
  void wait(const std::string& path) const {
    const auto held = [&] {
      return std::any_of(texts_.begin(), texts_.end(),
                         [&](const auto& text) { return path.find(text) != std::string::npos; });
    };
    std::unique_lock lock(events_->mutex);
    if (!held()) return;
    ++blocked_;
    events_->happened();
    events_->changed.wait(lock, [&] { return !held(); });
    --blocked_;
    events_->happened();
  }
  SystemFiles files_;
  const std::shared_ptr<Events> events_;
  mutable std::size_t blocked_ = 0;
  std::set<std::string> texts_;
};

// Real threads; the main loop is the test, its clock is set by hand.
struct Rig {
  explicit Rig(std::size_t max_stuck = 16) {
    DeviceGatherer::Options options;
    options.inventory.sys_root = std::string(WEFT_FIXTURES) + "/sysfs/mlx5";
    options.inventory.host = "h1";
    options.inventory.can_open = [](const std::string&) { return Result<void>{}; };
    options.max_stuck = max_stuck;
    gatherer = std::make_unique<DeviceGatherer>(
        options, files, [this](DeviceGatherer::Work work) { threads.emplace_back(std::move(work)); },
        [this](DeviceGatherer::Work work) {
          std::lock_guard lock(events->mutex);
          posted.push_back(std::move(work));
          events->happened();
        },
        clock, [this](Result<model::Inventory> result) { results.push_back(std::move(result)); });
  }
  ~Rig() {
    files->block({});
    for (std::thread& thread : threads) thread.join();
  }
  void run_posted() {
    std::vector<DeviceGatherer::Work> work;
    {
      std::lock_guard lock(events->mutex);
      work.swap(posted);
    }
    for (auto& each : work) each();
  }
  template <typename Condition>
  void until(const Condition& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (;;) {
      std::uint64_t seen = 0;
      {
        std::lock_guard lock(events->mutex);
        seen = events->count;
      }
      run_posted();
      if (condition()) return;
      std::unique_lock lock(events->mutex);
      REQUIRE(events->changed.wait_until(lock, deadline, [&] { return events->count != seen; }));
    }
  }
  // A whole reading; every device that blocks is waited for, then given up.
  const model::Inventory& gather(std::size_t blocking = 0) {
    const std::size_t before = results.size();
    const std::size_t already = files->blocked();
    gatherer->start();
    for (std::size_t i = 0; i < blocking; ++i) {
      until([&] { return files->blocked() == already + i + 1; });
      gatherer->tick();  // sees how far it has come
      clock.advance(3 * kSecond);
      gatherer->tick();
    }
    until([&] { return results.size() > before; });
    REQUIRE(results.back());
    return *results.back();
  }

  FakeClock clock;
  std::shared_ptr<Events> events = std::make_shared<Events>();
  std::shared_ptr<BlockingFiles> files = std::make_shared<BlockingFiles>(events);
  std::vector<DeviceGatherer::Work> posted;
  std::vector<std::thread> threads;
  std::vector<Result<model::Inventory>> results;
  std::unique_ptr<DeviceGatherer> gatherer;
};

std::size_t stuck(const model::Inventory& inventory) {
  return static_cast<std::size_t>(
      std::count_if(inventory.limitations.begin(), inventory.limitations.end(),
                    [](const auto& one) { return one.why.find("has not returned") != std::string::npos; }));
}

}  // namespace

TEST_CASE("gathering: what comes of it is what reading all in turn gives", "[inventory]") {
  Rig rig;
  const model::Inventory& got = rig.gather();
  InventoryOptions options;
  options.sys_root = std::string(WEFT_FIXTURES) + "/sysfs/mlx5";
  options.host = "h1";
  options.can_open = [](const std::string&) { return Result<void>{}; };
  CHECK(got == read_inventory(SystemFiles(), options));
  CHECK(rig.gather().devices.size() == 8);
}

TEST_CASE("gathering: devices that block in a read at start hide no other and are named, each asked once only",
          "[inventory]") {
  test::expect_log("reading the device has not returned");
  Rig rig;
  rig.files->block({"/mlx5_3/ports/1/state", "/mlx5_5/fw_ver"});
  const model::Inventory first = rig.gather(2);
  REQUIRE(first.devices.size() == 8);
  CHECK(first.devices[0].ports.size() == 1);
  CHECK(first.devices[3].ports.empty());
  CHECK(first.devices[7].ports.size() == 1);
  CHECK(stuck(first) == 2);
  CHECK(std::any_of(first.limitations.begin(), first.limitations.end(),
                    [](const auto& one) { return one.subject == "rnic:h1/mlx5_3"; }));

  // The next readings leave them out.
  CHECK(stuck(rig.gather()) == 2);
  CHECK(rig.files->blocked() == 2);

  rig.files->block({});
  rig.until([&] { return rig.files->blocked() == 0; });
  rig.until([&] { return stuck(rig.gather()) == 0; });
  CHECK(rig.results.back()->devices[3].ports.size() == 1);
}

TEST_CASE("gathering: of a device that blocks later the last reading stands", "[inventory]") {
  test::expect_log("reading the device has not returned");
  Rig rig;
  const model::Inventory before = rig.gather();
  rig.files->block({"/mlx5_3/"});
  const model::Inventory after = rig.gather(1);
  CHECK(after.devices == before.devices);
  CHECK(stuck(after) == 1);
}

TEST_CASE("gathering: threads that do not come back are bounded", "[inventory]") {
  test::expect_log("reading the device has not returned");
  Rig rig(2);
  rig.files->block({"/infiniband/mlx5_"});
  const model::Inventory got = rig.gather(2);
  CHECK(got.devices.size() == 8);
  CHECK(stuck(got) == 2);
  CHECK(rig.threads.size() == 2);
  CHECK(std::any_of(got.limitations.begin(), got.limitations.end(),
                    [](const auto& one) { return one.why.find("too many") != std::string::npos; }));
}

TEST_CASE("gathering: a listing that blocks is an error in words, and is not asked twice", "[inventory]") {
  Rig rig;
  rig.files->block({"/class/infiniband"});
  rig.gatherer->start();
  rig.until([&] { return rig.files->blocked() == 1; });
  rig.clock.advance(3 * kSecond);
  rig.gatherer->tick();
  REQUIRE(rig.results.size() == 1);
  REQUIRE_FALSE(rig.results[0]);
  CHECK_THAT(rig.results[0].error().message(), ContainsSubstring("has not returned"));
  rig.gatherer->start();
  CHECK(rig.threads.size() == 1);
  rig.files->block({});
  rig.until([&] {
    rig.gatherer->start();
    return rig.gatherer->busy();
  });
  rig.until([&] { return rig.results.size() == 2; });
  CHECK(rig.results[1]);
}

TEST_CASE("gathering: values that a device does not give are counted, the usual apart from the failing",
          "[inventory]") {
  FailingFiles files;
  const std::string device = std::string(WEFT_FIXTURES) + "/sysfs/mlx5/class/infiniband/mlx5_3";
  InventoryOptions options;
  options.sys_root = std::string(WEFT_FIXTURES) + "/sysfs/mlx5";
  options.host = "h1";
  const Listing listing = list_devices(files, options);
  const ReadCounts whole = read_device(files, options, listing, "mlx5_3").counts;
  files.failures[device + "/fw_ver"] = EINVAL;
  files.failures[device + "/node_guid"] = ENOENT;
  files.failures[device + "/ports/1/rate"] = EIO;
  const ReadCounts hurt = read_device(files, options, listing, "mlx5_3").counts;
  CHECK(hurt.absent == whole.absent + 2);
  CHECK(hurt.failed == whole.failed + 1);
}
