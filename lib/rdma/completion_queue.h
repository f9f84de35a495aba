// A completion queue with its channel, on the best timestamp rung the device offers:
// NIC wall clock -> NIC ticks -> extended without time -> classic. rxe goes straight to classic: rdma-core's extended
// polling of rxe had phantom completions and a double unlock (rdma-core PR 1512, 1617).
// Used by one thread. Destroy the queue pairs first.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/rdma/device.h"
#include "lib/rdma/packet_clock.h"

namespace weft::rdma {

struct Completion {
  std::uint64_t work_id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint32_t byte_len = 0;    // receives: GRH area included
  std::uint32_t queue_pair = 0;  // own
  std::uint32_t source_queue_pair = 0;
  bool has_grh = false;
  std::uint64_t stamp = 0;  // on clock(); on the Software rung the monotonic time it was polled
  Nanos polled_ns = 0;
};

class CompletionQueue {
 public:
  // entries: at most the device's max_cqe; an overrun would be fatal, so callers size it for all their requests.
  static Result<std::unique_ptr<CompletionQueue>> create(Device& device, unsigned entries, const Clock& clock);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  const PacketClock& clock() const { return packet_clock_; }
  ibv_cq* handle() const { return queue_; }

  // Appends at most limit completions; none is not an error. Never blocks.
  Result<void> poll(std::vector<Completion>& out, unsigned limit);
  // Readable when a completion came after arm().
  int event_fd() const { return channel_->fd; }
  // To be called before waiting. True: completions that were there before give no event, so poll once more. A queue
  // that is armed still costs one read, and gives false.
  Result<bool> arm();

 private:
  CompletionQueue(Device& device, const Clock& clock) : device_(device), clock_(clock) {}
  Result<void> open_channel();
  bool try_extended(unsigned entries, model::TimestampRung rung);
  Result<void> poll_classic(std::vector<Completion>& out, unsigned limit);
  Result<void> poll_extended(std::vector<Completion>& out, unsigned limit);
  Completion read_current();
  bool take_event();

  Device& device_;
  const Clock& clock_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_cq_ex* extended_ = nullptr;  // the same queue, when extended
  PacketClock packet_clock_;
  unsigned unacknowledged_ = 0;
  bool armed_ = false;  // an event is to come, or waits to be read
};

}  // namespace weft::rdma
