// What waits to be sent. Bounded: when samples pass their bound the oldest go, each counted, and a marker record tells
// the receiver how many are missing; state and findings are never dropped (a newer one of the same key replaces the
// older one, so they are bounded by what can be named). Used by the main loop only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>

#include "agent/daemon/record.h"
#include "lib/wire/batch_builder.h"

namespace weft::agent {

struct OutboxLimits {
  std::size_t max_samples = 100'000;
  std::size_t max_sample_bytes = 16 * 1024 * 1024;
};

class Outbox {
 public:
  // encode_gap makes the marker record from a count.
  Outbox(OutboxLimits limits, std::function<std::string(std::uint64_t)> encode_gap)
      : limits_(limits), encode_gap_(std::move(encode_gap)) {}

  void push(Record record);
  // Fills the builder: findings, state, then samples from the oldest.
  void take(wire::BatchBuilder& into);

  bool empty() const { return samples_.empty() && findings_.empty() && state_.empty() && pending_gap_ == 0; }
  std::size_t size() const { return samples_.size() + findings_.size() + state_.size(); }
  std::size_t sample_bytes() const { return sample_bytes_; }
  std::uint64_t dropped_samples() const { return dropped_samples_; }
  // Records too large ever to be sent.
  std::uint64_t refused_records() const { return refused_records_; }

 private:
  // In order of first arrival; a replacement keeps its place.
  struct Keyed {
    std::list<Record> order;
    std::map<std::string, std::list<Record>::iterator> by_key;
    void push(Record record);
    bool empty() const { return order.empty(); }
    std::size_t size() const { return order.size(); }
  };
  static bool take_keyed(Keyed& from, wire::BatchBuilder& into);

  OutboxLimits limits_;
  std::function<std::string(std::uint64_t)> encode_gap_;
  std::deque<std::string> samples_;
  Keyed state_, findings_;
  std::size_t sample_bytes_ = 0;
  std::uint64_t pending_gap_ = 0;  // dropped since the last marker
  std::uint64_t dropped_samples_ = 0;
  std::uint64_t refused_records_ = 0;
};

}  // namespace weft::agent
