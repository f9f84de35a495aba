#include "aggregator/store/writer.h"

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "tests/unit/aggregator/fakes.h"
#include "tests/unit/catch.h"

using weft::kMillisecond;
using weft::kSecond;
using weft::SystemClock;
using namespace weft::aggregator;
using weft::test::TemporaryFolder;

namespace {

// Collects what the writer says is stored; wait() ends when a sequence is there or after 10 s.
class Stored {
 public:
  Writer::OnStored sink() {
    return [this](const std::vector<AgentRow>& rows) {
      std::lock_guard lock(mutex_);
      for (const AgentRow& row : rows) last_[row.agent] = row.last_sequence;
      changed_.notify_all();
    };
  }
  bool wait(const std::string& agent, std::uint64_t sequence) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return last_[agent] >= sequence; });
  }
  std::uint64_t last(const std::string& agent) {
    std::lock_guard lock(mutex_);
    return last_[agent];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::uint64_t> last_;
};

BatchRow batch(const std::string& agent, std::uint64_t sequence, std::size_t size = 10) {
  return {agent, 1, sequence, SystemClock().wall_ns(), {std::string(size, 'r')}, {}};
}

Database open(const std::string& path) {
  auto database = Database::open(path, {}, SystemClock().wall_ns());
  REQUIRE(database);
  return std::move(*database);
}

}  // namespace

TEST_CASE("writer: without room all that waits of the agent goes, and others stay", "[aggregator]") {
  TemporaryFolder folder;
  SystemClock clock;
  Stored stored;
  // The first commit comes at once, the next only after an hour: what follows waits.
  Writer writer(open(folder / "weft.db"), {}, 3600 * kSecond, 3000, clock, stored.sink());
  REQUIRE(writer.add(batch("h0", 1)));
  REQUIRE(stored.wait("h0", 1));
  CHECK(writer.add(batch("h1", 1, 1000)));
  CHECK(writer.add(batch("h2", 1, 1000)));
  CHECK_FALSE(writer.add(batch("h1", 2, 1000)));
  CHECK(writer.status().pending_batches == 1);
  writer.stop();
  CHECK(stored.last("h1") == 0);
  CHECK(stored.last("h2") == 1);
}

TEST_CASE("writer: batches are stored together, and stopping stores what waits", "[aggregator]") {
  TemporaryFolder folder;
  SystemClock clock;
  Stored stored;
  Writer writer(open(folder / "weft.db"), {}, 3600 * kSecond, 1 << 20, clock, stored.sink());
  writer.add(batch("h1", 1));
  REQUIRE(stored.wait("h1", 1));
  for (std::uint64_t i = 2; i <= 100; ++i) writer.add(batch("h1", i));
  const auto before = writer.status().commits;
  writer.stop();
  CHECK(stored.last("h1") == 100);
  CHECK(writer.status().commits == before + 1);
}

TEST_CASE("writer: findings do not wait for the interval", "[aggregator]") {
  TemporaryFolder folder;
  SystemClock clock;
  Stored stored;
  Writer writer(open(folder / "weft.db"), {}, 3600 * kSecond, 1 << 20, clock, stored.sink());
  writer.add(batch("h1", 1));
  REQUIRE(stored.wait("h1", 1));
  weft::model::Finding finding;
  finding.id = "f1";
  finding.subject = "host:h1";
  CHECK(writer.save({finding}, std::chrono::seconds(10)));
  const auto recovered = writer.load(std::chrono::seconds(10));
  REQUIRE(recovered);
  CHECK(recovered->findings.size() == 1);
}

TEST_CASE("writer: after stopping nothing hangs", "[aggregator]") {
  TemporaryFolder folder;
  SystemClock clock;
  Stored stored;
  Writer writer(open(folder / "weft.db"), {}, kMillisecond, 1 << 20, clock, stored.sink());
  writer.stop();
  writer.stop();
  CHECK_FALSE(writer.load(std::chrono::seconds(10)));
}
