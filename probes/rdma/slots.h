// Buffers of one direction of one lane, and the work request ids that name them.
// An id holds direction, lane, slot and a nonce that changes with each use, so a completion that was never asked for,
// or comes twice, or belongs to a request from before a restart, is recognised and ignored (rdma-core PR 1512).
// Pure bookkeeping; used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace weft::probes {

struct WorkId {
  bool receive = false;
  unsigned lane = 0;  // below 32,768
  unsigned slot = 0;  // below 65,536
  std::uint32_t nonce = 0;

  std::uint64_t pack() const {
    return (std::uint64_t{receive} << 63) | (std::uint64_t{lane & 0x7FFFu} << 48) |
           (std::uint64_t{slot & 0xFFFFu} << 32) | nonce;
  }
  static WorkId unpack(std::uint64_t id) {
    return {id >> 63 != 0, static_cast<unsigned>(id >> 48) & 0x7FFFu, static_cast<unsigned>(id >> 32) & 0xFFFFu,
            static_cast<std::uint32_t>(id)};
  }
};

class Slots {
 public:
  Slots(bool receive, unsigned lane, unsigned count);

  struct Taken {
    unsigned slot;
    std::uint64_t work_id;
  };
  // Absent when every slot is in use.
  std::optional<Taken> take(std::uint64_t cookie = 0);
  // The request ended: its cookie. Absent when the id names no request in flight: ignore that completion.
  std::optional<std::uint64_t> finish(const WorkId& id);
  // Everything in flight ended at once (queue pair reset): the cookies, oldest slot first.
  std::vector<std::uint64_t> finish_all();

  unsigned in_flight() const { return in_flight_; }
  unsigned size() const { return static_cast<unsigned>(slots_.size()); }

 private:
  struct Slot {
    std::uint64_t cookie = 0;
    std::uint32_t nonce = 0;
    bool busy = false;
  };
  void release(unsigned slot);

  bool receive_;
  unsigned lane_;
  std::vector<Slot> slots_;
  std::vector<unsigned> free_;
  unsigned in_flight_ = 0;
};

}  // namespace weft::probes
