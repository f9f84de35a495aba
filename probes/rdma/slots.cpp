#include "probes/rdma/slots.h"

namespace weft::probes {

Slots::Slots(bool receive, unsigned lane, unsigned count) : receive_(receive), lane_(lane), slots_(count) {
  free_.reserve(count);
  for (unsigned slot = count; slot > 0; --slot) free_.push_back(slot - 1);
}

std::optional<Slots::Taken> Slots::take(std::uint64_t cookie) {
  if (free_.empty()) return std::nullopt;
  const unsigned index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.cookie = cookie;
  slot.busy = true;
  ++slot.nonce;
  ++in_flight_;
  return Taken{index, WorkId{receive_, lane_, index, slot.nonce}.pack()};
}

std::optional<std::uint64_t> Slots::finish(const WorkId& id) {
  if (id.receive != receive_ || id.lane != lane_ || id.slot >= slots_.size()) return std::nullopt;
  const Slot& slot = slots_[id.slot];
  if (!slot.busy || slot.nonce != id.nonce) return std::nullopt;
  release(id.slot);
  return slot.cookie;
}

std::vector<std::uint64_t> Slots::finish_all() {
  std::vector<std::uint64_t> cookies;
  for (unsigned index = 0; index < slots_.size(); ++index) {
    if (!slots_[index].busy) continue;
    cookies.push_back(slots_[index].cookie);
    release(index);
  }
  return cookies;
}

void Slots::release(unsigned slot) {
  slots_[slot].busy = false;
  free_.push_back(slot);
  --in_flight_;
}

}  // namespace weft::probes
