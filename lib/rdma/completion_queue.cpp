#include "lib/rdma/completion_queue.h"

#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "lib/base/log.h"
#include "lib/rdma/enum_number.h"

namespace weft::rdma {
namespace {

constexpr std::uint64_t kFields =
    IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID;

std::uint64_t time_flag(model::TimestampRung rung) {
  switch (rung) {
    case model::TimestampRung::NicWallClock:
      return IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    case model::TimestampRung::NicTicks:
      return IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    default:
      return 0;
  }
}

// A driver newer than these headers may know more ways to fail.
ibv_wc_status known_status(std::uint32_t status) {
  return status <= IBV_WC_TM_RNDV_INCOMPLETE ? static_cast<ibv_wc_status>(status) : IBV_WC_GENERAL_ERR;
}

// Ticks per kHz against the CPU's clock over 2 ms, where the device lets its clock be read; true where it does not.
bool tick_rate_holds(ibv_context* context, std::uint64_t mask, std::uint64_t khz, const Clock& clock) {
  ibv_values_ex first{}, second{};
  first.comp_mask = second.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  const Nanos before = clock.monotonic_ns();
  if (ibv_query_rt_values_ex(context, &first) != 0 || (first.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) return true;
  timespec pause{0, 2 * kMillisecond};
  ::nanosleep(&pause, nullptr);
  if (ibv_query_rt_values_ex(context, &second) != 0) return true;
  const Nanos elapsed = clock.monotonic_ns() - before;
  // rdma-core puts the raw counter in tv_nsec (mlx5, mlx4); the wrap is handled by the mask.
  const auto ticks = static_cast<std::uint64_t>(second.raw_clock.tv_nsec - first.raw_clock.tv_nsec) & mask;
  return plausible_rate(ticks, khz, elapsed);
}

}  // namespace

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(Device& device, unsigned entries, const Clock& clock) {
  std::unique_ptr<CompletionQueue> queue(new CompletionQueue(device, clock));
  if (auto opened = queue->open_channel(); !opened) return opened.error();

  if (!device.is_rxe()) {
    using Rung = model::TimestampRung;
    for (const Rung rung : {Rung::NicWallClock, Rung::NicTicks, Rung::Software})
      if (queue->try_extended(entries, rung)) return queue;
  }
  queue->queue_ = ibv_create_cq(device.context(), static_cast<int>(entries), nullptr, queue->channel_, 0);
  if (queue->queue_ == nullptr)
    return errno_error(errno, device.name() + ": cannot create a completion queue of " + std::to_string(entries));
  return queue;
}

CompletionQueue::~CompletionQueue() {
  if (queue_ != nullptr) {
    while (take_event()) {
    }
    if (unacknowledged_ > 0) ibv_ack_cq_events(queue_, unacknowledged_);
    ibv_destroy_cq(queue_);
  }
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
}

Result<void> CompletionQueue::open_channel() {
  channel_ = ibv_create_comp_channel(device_.context());
  if (channel_ == nullptr) return errno_error(errno, device_.name() + ": cannot create a completion channel");
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0)
    return errno_error(errno, device_.name() + ": cannot make the completion channel non-blocking");
  return {};
}

bool CompletionQueue::try_extended(unsigned entries, model::TimestampRung rung) {
  PacketClock packet_clock;
  packet_clock.rung = rung;
  if (rung == model::TimestampRung::NicTicks) {
    const ibv_device_attr_ex& attributes = device_.attributes();
    if (attributes.completion_timestamp_mask == 0 || attributes.hca_core_clock == 0) return false;
    packet_clock.mask = attributes.completion_timestamp_mask;
    packet_clock.khz = attributes.hca_core_clock;
    if (!tick_rate_holds(device_.context(), packet_clock.mask, packet_clock.khz, clock_)) {
      log::warning("rdma", "the NIC's clock rate disagrees with the CPU's; its ticks are not used",
                   {{"device", device_.name()}, {"khz", packet_clock.khz}});
      return false;
    }
  }
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = entries;
  attributes.channel = channel_;
  attributes.wc_flags = kFields | time_flag(rung);
  extended_ = ibv_create_cq_ex(device_.context(), &attributes);
  if (extended_ == nullptr) return false;  // the next rung says why, if none works
  queue_ = ibv_cq_ex_to_cq(extended_);
  packet_clock_ = packet_clock;
  return true;
}

Result<void> CompletionQueue::poll(std::vector<Completion>& out, unsigned limit) {
  return extended_ != nullptr ? poll_extended(out, limit) : poll_classic(out, limit);
}

Result<void> CompletionQueue::poll_classic(std::vector<Completion>& out, unsigned limit) {
  std::array<ibv_wc, 16> batch;
  while (limit > 0) {
    const int wanted = static_cast<int>(std::min<std::size_t>(limit, batch.size()));
    const int got = ibv_poll_cq(queue_, wanted, batch.data());
    if (got < 0) return make_error(Error::Kind::Internal, device_.name() + ": polling the completion queue failed");
    const Nanos now = clock_.monotonic_ns();
    for (int i = 0; i < got; ++i) {
      const ibv_wc& wc = batch[static_cast<std::size_t>(i)];
      Completion completion;
      completion.work_id = wc.wr_id;
      completion.status = known_status(enum_number(wc.status));
      completion.byte_len = wc.byte_len;
      completion.queue_pair = wc.qp_num;
      completion.source_queue_pair = wc.src_qp;
      completion.has_grh = (wc.wc_flags & IBV_WC_GRH) != 0;
      completion.stamp = static_cast<std::uint64_t>(now);
      completion.polled_ns = now;
      out.push_back(completion);
    }
    limit -= static_cast<unsigned>(got);
    if (got < wanted) break;
  }
  return {};
}

Result<void> CompletionQueue::poll_extended(std::vector<Completion>& out, unsigned limit) {
  if (limit == 0) return {};
  ibv_poll_cq_attr attributes{};
  int status = EBUSY;
  // With wall clock stamps a poll may meet the kernel updating its clock page (mlx5): transient.
  for (int attempt = 0; status == EBUSY && attempt < 100; ++attempt) status = ibv_start_poll(extended_, &attributes);
  if (status == ENOENT || status == EBUSY) return {};
  if (status != 0) return errno_error(status, device_.name() + ": polling the completion queue failed");
  do {  // start_poll has already made the first completion the current one
    out.push_back(read_current());
    if (--limit == 0) break;
    status = ibv_next_poll(extended_);
  } while (status == 0);
  ibv_end_poll(extended_);
  return {};
}

Completion CompletionQueue::read_current() {
  Completion completion;
  completion.work_id = extended_->wr_id;
  completion.status = known_status(enum_number(extended_->status));
  completion.polled_ns = clock_.monotonic_ns();
  completion.stamp = static_cast<std::uint64_t>(completion.polled_ns);
  if (completion.status != IBV_WC_SUCCESS) return completion;  // nothing else is valid then
  completion.byte_len = ibv_wc_read_byte_len(extended_);
  completion.queue_pair = ibv_wc_read_qp_num(extended_);
  completion.source_queue_pair = ibv_wc_read_src_qp(extended_);
  completion.has_grh = (ibv_wc_read_wc_flags(extended_) & IBV_WC_GRH) != 0;
  if (packet_clock_.rung == model::TimestampRung::NicWallClock)
    completion.stamp = ibv_wc_read_completion_wallclock_ns(extended_);
  else if (packet_clock_.rung == model::TimestampRung::NicTicks)
    completion.stamp = ibv_wc_read_completion_ts(extended_);
  return completion;
}

Result<bool> CompletionQueue::arm() {
  if (armed_ && !take_event()) return false;
  if (const int error = ibv_req_notify_cq(queue_, 0); error != 0)
    return errno_error(error, device_.name() + ": cannot ask for completion events");
  armed_ = true;
  return true;
}

// There is one at most for each time the queue was armed.
bool CompletionQueue::take_event() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_, &queue, &context) != 0) return false;
  armed_ = false;
  ++unacknowledged_;
  // Acknowledging takes a lock each time, so it is done in batches; destroying waits for all of them.
  if (unacknowledged_ >= 64) {
    ibv_ack_cq_events(queue_, unacknowledged_);
    unacknowledged_ = 0;
  }
  return true;
}

}  // namespace weft::rdma
