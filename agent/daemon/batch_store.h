// Batches that were numbered and are not yet acknowledged: kept to be sent again. The seam where the disk spool goes;
// MemoryStore forgets at exit, and a new epoch tells the aggregator so. Used by the main loop only.
#pragma once

#include <cstdint>
#include <deque>

#include "lib/wire/messages.h"

namespace weft::agent {

class BatchStore {
 public:
  virtual ~BatchStore() = default;
  // True while another batch may be added.
  virtual bool has_room() const = 0;
  virtual void add(wire::Batch batch) = 0;
  // Forgets everything up to the sequence.
  virtual void acknowledge(std::uint64_t sequence) = 0;
  // The first batch after the sequence; null when there is none. Valid until the next change.
  virtual const wire::Batch* next_after(std::uint64_t sequence) const = 0;
  virtual std::size_t records() const = 0;
  // 0 when everything is acknowledged.
  virtual std::uint64_t first_sequence() const = 0;
};

class MemoryStore final : public BatchStore {
 public:
  MemoryStore(std::size_t max_batches, std::size_t max_bytes) : max_batches_(max_batches), max_bytes_(max_bytes) {}

  bool has_room() const override { return batches_.empty() || (batches_.size() < max_batches_ && bytes_ < max_bytes_); }
  void add(wire::Batch batch) override {
    bytes_ += bytes_of(batch);
    records_ += batch.records.size();
    batches_.push_back(std::move(batch));
  }
  void acknowledge(std::uint64_t sequence) override {
    while (!batches_.empty() && batches_.front().sequence <= sequence) {
      bytes_ -= bytes_of(batches_.front());
      records_ -= batches_.front().records.size();
      batches_.pop_front();
    }
  }
  const wire::Batch* next_after(std::uint64_t sequence) const override {
    for (const wire::Batch& batch : batches_) {
      if (batch.sequence > sequence) return &batch;
    }
    return nullptr;
  }
  std::size_t records() const override { return records_; }
  std::uint64_t first_sequence() const override { return batches_.empty() ? 0 : batches_.front().sequence; }

 private:
  static std::size_t bytes_of(const wire::Batch& batch) {
    std::size_t sum = 0;
    for (const std::string& record : batch.records) sum += record.size();
    return sum;
  }

  std::size_t max_batches_, max_bytes_;
  std::deque<wire::Batch> batches_;
  std::size_t bytes_ = 0, records_ = 0;
};

}  // namespace weft::agent
