#include "aggregator/store/writer.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace weft::aggregator {
namespace {

constexpr Nanos kRetry = kSecond;
constexpr Nanos kTrimInterval = 5 * kSecond;
// One transaction never holds more; the rest follows at once.
constexpr std::size_t kMaxCommitBatches = 20'000;

}  // namespace

Writer::Writer(Database database, DatabaseLimits limits, Nanos commit_interval_ns, std::size_t max_pending_bytes,
               const Clock& clock, OnStored on_stored)
    : database_(std::move(database)),
      limits_(limits),
      commit_interval_ns_(commit_interval_ns),
      max_pending_bytes_(max_pending_bytes),
      clock_(clock),
      on_stored_(std::move(on_stored)) {
  status_.started_empty_after_damage = database_.started_empty_after_damage();
  status_.errors_corrupt = status_.started_empty_after_damage ? 1 : 0;
  status_.size_bytes = database_.size_bytes();
  thread_ = std::thread([this] { run(); });
}

Writer::~Writer() { stop(); }

void Writer::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Writer::add(BatchRow batch) {
  std::lock_guard lock(mutex_);
  const std::size_t bytes = batch.bytes();
  if (batch_bytes_ + bytes > max_pending_bytes_) {
    const auto gone = std::remove_if(batches_.begin(), batches_.end(), [&](const BatchRow& waiting) {
      if (waiting.agent != batch.agent) return false;
      batch_bytes_ -= waiting.bytes();
      return true;
    });
    batches_.erase(gone, batches_.end());
    status_.pending_batches = batches_.size();
    return false;
  }
  batch_bytes_ += bytes;
  batches_.push_back(std::move(batch));
  status_.pending_batches = batches_.size();
  wake_.notify_one();
  return true;
}

bool Writer::save(const std::vector<model::Finding>& findings, std::chrono::milliseconds wait) {
  if (findings.empty()) return true;
  std::unique_lock lock(mutex_);
  for (const model::Finding& finding : findings) findings_[finding.id] = finding;
  const std::uint64_t version = ++findings_version_;
  wake_.notify_one();
  // A disk that is known to fail is not waited for.
  if (!status_.acknowledging) return false;
  saved_.wait_for(lock, wait,
                  [&] { return findings_saved_version_ >= version || !status_.acknowledging || stopping_; });
  return findings_saved_version_ >= version;
}

Result<Recovered> Writer::load(std::chrono::milliseconds wait) {
  auto promise = std::make_shared<std::promise<Result<Recovered>>>();
  std::future<Result<Recovered>> future = promise->get_future();
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return make_error(Error::Kind::Transient, "store: stopping");
    loads_.push_back(std::move(promise));
  }
  wake_.notify_one();
  if (future.wait_for(wait) != std::future_status::ready) {
    return make_error(Error::Kind::Timeout, "store: no answer from the disk");
  }
  return future.get();
}

StoreStatus Writer::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

void Writer::run() {
  Nanos next_commit = 0;
  Nanos next_trim = clock_.monotonic_ns() + kTrimInterval;
  std::unique_lock lock(mutex_);
  while (true) {
    const Nanos now = clock_.monotonic_ns();
    const bool failing = !status_.acknowledging;
    const bool wanted = !batches_.empty() || !findings_.empty();
    const bool urgent = !findings_.empty() && !failing;
    if (stopping_ || (wanted && (urgent || now >= next_commit))) {
      lock.unlock();
      commit_pending();
      lock.lock();
      next_commit = clock_.monotonic_ns() + (status_.acknowledging ? commit_interval_ns_ : kRetry);
      if (stopping_ && (batches_.empty() || !status_.acknowledging)) break;
      continue;
    }
    if (!loads_.empty()) {
      auto loads = std::exchange(loads_, {});
      lock.unlock();
      for (auto& promise : loads) promise->set_value(database_.load(clock_.wall_ns()));
      lock.lock();
      continue;
    }
    if (now >= next_trim) {
      next_trim = now + kTrimInterval;
      lock.unlock();
      // A failure here shows at the next commit as well, which then decides.
      const Result<void> trimmed = database_.trim(clock_.wall_ns());
      if (!trimmed) log::debug("store", "trim failed", {{"why", trimmed.error().message()}});
      const std::uint64_t size = database_.size_bytes();
      lock.lock();
      status_.size_bytes = size;
      continue;
    }
    Nanos until = next_trim;
    if (wanted) until = std::min(until, next_commit);
    wake_.wait_for(lock, std::chrono::nanoseconds(std::max<Nanos>(until - now, kMillisecond)));
  }
  for (auto& promise : loads_) promise->set_value(make_error(Error::Kind::Transient, "store: stopping"));
  loads_.clear();
}

void Writer::commit_pending() {
  std::vector<BatchRow> batches;
  std::vector<model::Finding> findings;
  std::uint64_t version = 0;
  bool failing = false;
  {
    std::lock_guard lock(mutex_);
    const std::size_t take = std::min(batches_.size(), kMaxCommitBatches);
    batches.assign(std::make_move_iterator(batches_.begin()),
                   std::make_move_iterator(batches_.begin() + static_cast<std::ptrdiff_t>(take)));
    batches_.erase(batches_.begin(), batches_.begin() + static_cast<std::ptrdiff_t>(take));
    for (const BatchRow& batch : batches) batch_bytes_ -= batch.bytes();
    for (const auto& [id, finding] : findings_) findings.push_back(finding);
    version = findings_version_;
    failing = !status_.acknowledging;
  }
  if (batches.empty() && findings.empty()) return;
  if (database_.closed()) reopen();
  if (failing) database_.shrink();
  const Result<void> committed = database_.commit(batches, findings);
  if (!committed) {
    std::lock_guard lock(mutex_);
    for (const BatchRow& batch : batches) batch_bytes_ += batch.bytes();
    batches_.insert(batches_.begin(), std::make_move_iterator(batches.begin()), std::make_move_iterator(batches.end()));
    failed(committed.error());
    return;
  }
  std::map<std::string, AgentRow> newest;
  for (const BatchRow& batch : batches) {
    if (batch.sequence == 0) continue;
    AgentRow& row = newest[batch.agent];
    row = {
        batch.agent, batch.epoch, batch.sequence, batch.received_wall_ns, row.batches + 1, row.records + batch.records};
  }
  std::vector<AgentRow> stored;
  for (auto& [agent, row] : newest) stored.push_back(std::move(row));
  {
    std::lock_guard lock(mutex_);
    // A newer version that came meanwhile stays queued.
    for (const model::Finding& finding : findings) {
      const auto it = findings_.find(finding.id);
      if (it != findings_.end() && it->second == finding) findings_.erase(it);
    }
    findings_saved_version_ = std::max(findings_saved_version_, version);
    ++status_.commits;
    status_.pending_batches = batches_.size();
    status_.size_bytes = database_.size_bytes();
    if (!status_.acknowledging) log::info("store", "works again; acknowledging");
    status_.acknowledging = true;
    status_.problem.clear();
  }
  saved_.notify_all();
  if (!stored.empty() && on_stored_) on_stored_(stored);
}

// Called with the lock held.
void Writer::failed(const Error& error) {
  std::uint64_t held = 0;
  if (error.kind == Error::Kind::Exhausted) ++status_.errors_full;
  if (error.kind == Error::Kind::Malformed) ++status_.errors_corrupt;
  if (error.kind != Error::Kind::Exhausted && error.kind != Error::Kind::Malformed) ++status_.errors_other;
  status_.acknowledging = false;
  status_.problem = error.message();
  status_.pending_batches = batches_.size();
  if (limiter_.allow(clock_.monotonic_ns(), held)) {
    log::error("store", "cannot write: nothing is acknowledged, judging goes on",
               {{"path", database_.path()}, {"why", error.message()}, {"held_back", held}});
  }
  // Opened anew by the next try, which moves the damaged file aside.
  if (error.kind == Error::Kind::Malformed) database_.close();
  saved_.notify_all();
}

void Writer::reopen() {
  Result<Database> fresh = Database::open(database_.path(), limits_, clock_.wall_ns());
  // Not open still: the commit that follows fails and says so.
  if (!fresh) return;
  database_ = std::move(*fresh);
  std::lock_guard lock(mutex_);
  ++status_.generation;
}

}  // namespace weft::aggregator
