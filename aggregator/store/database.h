// The durable state in one SQLite file (WAL): progress of agents, findings, a short journal of batches, the latest
// inventories and traces. One owner, not thread safe. SQLite stays inside database.cpp.
// Error kinds: Exhausted is a full disk, Malformed a corrupt file, Invalid a file of a newer weft, Transient one in use
// by another process, else Internal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aggregator/store/rows.h"
#include "lib/base/result.h"

namespace weft::aggregator {

struct DatabaseLimits {
  Nanos journal_retention_ns = 60 * kSecond;
  std::size_t journal_max_bytes = 256 * 1024 * 1024;
  Nanos latest_retention_ns = 24 * 3600 * kSecond;  // of agents not heard of and of what they said
  std::size_t latest_max_rows = 500'000;
  std::size_t findings_kept = 10'000;  // cleared ones past this are forgotten, oldest first
  std::size_t findings_loaded = 1'000;
};

class Database {
 public:
  // Opens or creates. A file that is corrupt or no database is moved aside to PATH.bad-TIME with a warning, and an
  // empty one takes its place. A folder that is missing or not writable, or a newer schema, is an error.
  static Result<Database> open(const std::string& path, DatabaseLimits limits, Nanos wall_now);

  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;
  ~Database();

  // All or nothing; durable (fsync) when it returns.
  Result<void> commit(const std::vector<BatchRow>& batches, const std::vector<model::Finding>& findings);
  // Drops what is past its retention or bound.
  Result<void> trim(Nanos wall_now);
  Result<Recovered> load(Nanos wall_now);
  // Gives back what the write-ahead log holds; tried when the disk is full.
  void shrink();
  // Afterwards everything fails; the file is no longer held.
  void close();
  bool closed() const;
  std::uint64_t size_bytes() const;
  bool started_empty_after_damage() const;
  const std::string& path() const;

 private:
  struct Impl;
  explicit Database(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::aggregator
