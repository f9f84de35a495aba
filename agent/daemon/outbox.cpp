#include "agent/daemon/outbox.h"

namespace weft::agent {
void Outbox::Keyed::push(Record record) {
  const auto found = by_key.find(record.key);
  if (found != by_key.end()) {
    *found->second = std::move(record);
    return;
  }
  order.push_back(std::move(record));
  by_key.emplace(order.back().key, std::prev(order.end()));
}

void Outbox::push(Record record) {
  if (record.bytes.size() > wire::kMaxRecordBytes) {
    ++refused_records_;
    return;
  }
  if (record.cls == RecordClass::Finding) {
    findings_.push(std::move(record));
    return;
  }
  if (record.cls == RecordClass::State) {
    state_.push(std::move(record));
    return;
  }
  sample_bytes_ += record.bytes.size();
  samples_.push_back(std::move(record.bytes));
  while (samples_.size() > limits_.max_samples || sample_bytes_ > limits_.max_sample_bytes) {
    sample_bytes_ -= samples_.front().size();
    samples_.pop_front();
    ++dropped_samples_;
    ++pending_gap_;
  }
}

bool Outbox::take_keyed(Keyed& from, wire::BatchBuilder& into) {
  while (!from.order.empty()) {
    if (into.add(std::move(from.order.front().bytes)) == wire::BatchBuilder::Added::Full) return false;
    from.by_key.erase(from.order.front().key);
    from.order.pop_front();
  }
  return true;
}

void Outbox::take(wire::BatchBuilder& into) {
  using Added = wire::BatchBuilder::Added;
  if (!take_keyed(findings_, into) || !take_keyed(state_, into)) return;
  if (pending_gap_ > 0) {
    if (into.add(encode_gap_(pending_gap_)) == Added::Full) return;
    pending_gap_ = 0;
  }
  while (!samples_.empty()) {
    const std::size_t size = samples_.front().size();
    if (into.add(std::move(samples_.front())) == Added::Full) return;
    sample_bytes_ -= size;
    samples_.pop_front();
  }
}

}  // namespace weft::agent
