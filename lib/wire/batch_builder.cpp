#include "lib/wire/batch_builder.h"

#include <utility>

namespace weft::wire {

namespace {
constexpr std::size_t kFraming = 8;  // field tag and length of one record
}

BatchBuilder::Added BatchBuilder::add(std::string&& record) {
  if (record.size() > kMaxRecordBytes) return Added::TooLarge;
  const std::size_t cost = record.size() + kFraming;
  const bool over = bytes_ + cost > max_bytes_ || batch_.records.size() >= max_records_;
  if (over && !batch_.records.empty()) return Added::Full;
  bytes_ += cost;
  batch_.records.push_back(std::move(record));
  return Added::Yes;
}

Batch BatchBuilder::take(std::uint64_t sequence, Nanos wall_ns) {
  Batch out = std::exchange(batch_, {});
  bytes_ = 0;
  out.sequence = sequence;
  out.wall_ns = wall_ns;
  return out;
}

}  // namespace weft::wire
