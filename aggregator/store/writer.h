// The thread that owns the database: gathers batches and commits them together at most every 200 ms, findings at once.
// What was added is reported stored only after the commit. While the disk is full or fails nothing is reported stored,
// batches wait up to a bound of bytes, and every second it tries again; judging goes on without it.
// Thread safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "aggregator/store/database.h"
#include "aggregator/store/store.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"

namespace weft::aggregator {

class Writer final : public Store {
 public:
  // Called on the writer's thread: everything of each agent's epoch up to last_sequence is on disk.
  using OnStored = std::function<void(const std::vector<AgentRow>& stored)>;

  Writer(Database database, DatabaseLimits limits, Nanos commit_interval_ns, std::size_t max_pending_bytes,
         const Clock& clock, OnStored on_stored);
  ~Writer() override;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  bool add(BatchRow batch) override;
  bool save(const std::vector<model::Finding>& findings, std::chrono::milliseconds wait) override;
  Result<Recovered> load(std::chrono::milliseconds wait) override;
  StoreStatus status() const override;
  // Commits what is pending, then ends the thread. Idempotent.
  void stop();

 private:
  void run();
  void commit_pending();
  void failed(const Error& error);
  void reopen();

  Database database_;  // only the thread touches it
  const DatabaseLimits limits_;
  const Nanos commit_interval_ns_;
  const std::size_t max_pending_bytes_;
  const Clock& clock_;
  const OnStored on_stored_;
  log::Limiter limiter_{60 * kSecond};

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable saved_;
  bool stopping_ = false;
  std::vector<BatchRow> batches_;
  std::size_t batch_bytes_ = 0;
  std::map<std::string, model::Finding> findings_;  // by id, newest version
  std::uint64_t findings_version_ = 0, findings_saved_version_ = 0;
  std::vector<std::shared_ptr<std::promise<Result<Recovered>>>> loads_;
  StoreStatus status_;
  std::thread thread_;
};

}  // namespace weft::aggregator
