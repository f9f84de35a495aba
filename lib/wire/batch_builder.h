// Packs encoded records into batches bounded by bytes and number, so that a message never nears the limit of gRPC.
// Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lib/wire/messages.h"

namespace weft::wire {

class BatchBuilder {
 public:
  enum class Added {
    Yes,
    Full,      // take() first, then add it again
    TooLarge,  // over kMaxRecordBytes: never sendable, drop and count it
  };

  explicit BatchBuilder(std::size_t max_bytes = kMaxBatchBytes, std::size_t max_records = kMaxBatchRecords)
      : max_bytes_(max_bytes), max_records_(max_records) {}

  // Takes the record only when it answers Yes.
  Added add(std::string&& record);
  bool empty() const { return batch_.records.empty(); }
  std::size_t bytes() const { return bytes_; }
  std::size_t records() const { return batch_.records.size(); }
  // The batch so far under this sequence; the builder is empty afterwards.
  Batch take(std::uint64_t sequence, Nanos wall_ns);

 private:
  const std::size_t max_bytes_;
  const std::size_t max_records_;
  Batch batch_;
  std::size_t bytes_ = 0;
};

}  // namespace weft::wire
