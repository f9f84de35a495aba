// One UD queue pair, ready to send and receive. Every request is signalled and has one scatter entry.
// Used by one thread; destroyed before its completion queue and device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "lib/base/result.h"
#include "lib/rdma/completion_queue.h"
#include "lib/rdma/device.h"

namespace weft::rdma {

// Same on every weft host: keeps foreign UD traffic out cheaply (authentication is in the payload). The top bit is
// clear: with it set the queue pair's own value would be used instead.
inline constexpr std::uint32_t kQueueKey = 0x57454654;

struct QueueDepth {
  unsigned send = 64;
  unsigned receive = 128;
};

class UdQueuePair {
 public:
  // Goes through INIT, RTR, RTS; the error names device, port and step.
  // Unsupported when the device has no UD queue pairs (iWARP, qedr).
  static Result<std::unique_ptr<UdQueuePair>> create(Device& device, unsigned port, CompletionQueue& queue,
                                                     QueueDepth depth);
  ~UdQueuePair();
  UdQueuePair(const UdQueuePair&) = delete;
  UdQueuePair& operator=(const UdQueuePair&) = delete;

  std::uint32_t number() const { return handle_->qp_num; }

  // After an error completion: RESET and up again. Keeps its number. Everything posted is gone, without completions.
  Result<void> restart();
  // Transient when the queue is full.
  Result<void> post_receive(std::uint64_t work_id, ibv_sge buffer);
  Result<void> post_send(std::uint64_t work_id, ibv_sge buffer, ibv_ah* to, std::uint32_t queue_pair);

 private:
  UdQueuePair(Device& device, unsigned port, ibv_qp* handle) : device_(device), port_(port), handle_(handle) {}
  Result<void> modify(ibv_qp_state state, const char* step);
  Result<void> bring_up();

  Device& device_;
  unsigned port_;
  ibv_qp* handle_;
};

}  // namespace weft::rdma
