// One lane: a UD queue pair with its registered buffers. Used by the transport's thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/rdma/ud_queue_pair.h"
#include "probes/ping/transport.h"
#include "probes/rdma/slots.h"

namespace weft::probes {

struct LaneOptions {
  unsigned index = 0;  // in the transport, never used twice
  Role role = Role::Prober;
  unsigned port = 1;
  rdma::QueueDepth depth;
  std::size_t max_payload_bytes = 1024;
};

class Lane {
 public:
  // The error of a failed memory registration says when it is the lock limit.
  static Result<std::unique_ptr<Lane>> open(rdma::Device& device, rdma::CompletionQueue& queue,
                                            const LaneOptions& options);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Role role() const { return options_.role; }
  std::uint32_t number() const { return pair_->number(); }
  // Transient when every send slot is in flight or the lane waits for its restart.
  Result<void> send(ibv_ah* to, std::uint32_t queue_pair, std::span<const std::uint8_t> payload, std::uint64_t cookie);

  // The cookie of a finished send; absent: not ours.
  std::optional<std::uint64_t> finish_send(const WorkId& id) { return sends_.finish(id); }
  // The GRH area and payload of a finished receive, valid until refill(); absent: not ours.
  std::optional<std::span<const std::uint8_t>> finish_receive(const WorkId& id, std::size_t bytes);
  // Posts every free receive buffer.
  Result<void> refill();
  // Free receive buffers, as far as completions tell.
  unsigned posted() const { return receives_.in_flight(); }

  // An error completion stopped the queue pair. restart() brings it up again, and returns the cookies of the sends
  // that were lost in it.
  void mark_broken() { broken_ = true; }
  bool broken() const { return broken_; }
  Result<std::vector<std::uint64_t>> restart();

 private:
  explicit Lane(const LaneOptions& options);
  ibv_sge receive_area(unsigned slot) const;
  ibv_sge send_area(unsigned slot, std::size_t bytes) const;

  const LaneOptions options_;
  const std::size_t receive_stride_;
  const std::size_t send_stride_;
  std::unique_ptr<std::uint8_t[]> memory_;
  ibv_mr* region_ = nullptr;
  std::unique_ptr<rdma::UdQueuePair> pair_;
  Slots sends_;
  Slots receives_;
  bool broken_ = false;
};

}  // namespace weft::probes
