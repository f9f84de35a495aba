#include "probes/rdma/lane.h"

#include <algorithm>
#include <cerrno>

#include "lib/rdma/grh.h"

namespace weft::probes {
namespace {

std::size_t cache_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Lane::Lane(const LaneOptions& options)
    : options_(options),
      receive_stride_(cache_lines(rdma::kGrhBytes + options.max_payload_bytes)),
      send_stride_(cache_lines(options.max_payload_bytes)),
      sends_(false, options.index, options.depth.send),
      receives_(true, options.index, options.depth.receive) {}

Result<std::unique_ptr<Lane>> Lane::open(rdma::Device& device, rdma::CompletionQueue& queue,
                                         const LaneOptions& options) {
  std::unique_ptr<Lane> lane(new Lane(options));
  const std::size_t bytes = options.depth.receive * lane->receive_stride_ + options.depth.send * lane->send_stride_;
  lane->memory_ = std::make_unique<std::uint8_t[]>(bytes);
  const int access = IBV_ACCESS_LOCAL_WRITE;  // an int: the macro mixes enumeration types, which clang warns of
  lane->region_ = ibv_reg_mr(device.domain(), lane->memory_.get(), bytes, access);
  if (lane->region_ == nullptr) {
    Error error = errno_error(
        errno, device.port_name(options.port) + ": cannot register " + std::to_string(bytes) + " bytes of buffers");
    if (error.error_number == ENOMEM) error.context += " (raise the locked memory limit: LimitMEMLOCK=, ulimit -l)";
    return error;
  }
  auto pair = rdma::UdQueuePair::create(device, options.port, queue, options.depth);
  if (!pair) return pair.error();
  lane->pair_ = std::move(*pair);
  if (auto filled = lane->refill(); !filled) return filled.error();
  return lane;
}

Lane::~Lane() {
  pair_.reset();  // before the memory it may still write to
  if (region_ != nullptr) ibv_dereg_mr(region_);
}

ibv_sge Lane::receive_area(unsigned slot) const {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.get() + slot * receive_stride_);
  return {address, static_cast<std::uint32_t>(rdma::kGrhBytes + options_.max_payload_bytes), region_->lkey};
}

ibv_sge Lane::send_area(unsigned slot, std::size_t bytes) const {
  const std::size_t offset = options_.depth.receive * receive_stride_ + slot * send_stride_;
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.get() + offset);
  return {address, static_cast<std::uint32_t>(bytes), region_->lkey};
}

Result<void> Lane::send(ibv_ah* to, std::uint32_t queue_pair, std::span<const std::uint8_t> payload,
                        std::uint64_t cookie) {
  if (broken_) return make_error(Error::Kind::Transient, "queue pair " + std::to_string(number()) + " restarts");
  const auto taken = sends_.take(cookie);
  if (!taken) return make_error(Error::Kind::Transient, "queue pair " + std::to_string(number()) + ": send queue full");
  const ibv_sge area = send_area(taken->slot, payload.size());
  std::copy(payload.begin(), payload.end(), reinterpret_cast<std::uint8_t*>(area.addr));
  auto posted = pair_->post_send(taken->work_id, area, to, queue_pair);
  if (!posted) sends_.finish(WorkId::unpack(taken->work_id));
  return posted;
}

std::optional<std::span<const std::uint8_t>> Lane::finish_receive(const WorkId& id, std::size_t bytes) {
  if (!receives_.finish(id)) return std::nullopt;
  return std::span<const std::uint8_t>(memory_.get() + id.slot * receive_stride_, std::min(bytes, receive_stride_));
}

Result<void> Lane::refill() {
  if (broken_) return {};
  while (const auto taken = receives_.take()) {
    if (auto posted = pair_->post_receive(taken->work_id, receive_area(taken->slot)); !posted) {
      receives_.finish(WorkId::unpack(taken->work_id));
      return posted;
    }
  }
  return {};
}

Result<std::vector<std::uint64_t>> Lane::restart() {
  if (auto up = pair_->restart(); !up) return up.error();
  broken_ = false;
  receives_.finish_all();
  std::vector<std::uint64_t> lost = sends_.finish_all();
  if (auto filled = refill(); !filled) return filled.error();
  return lost;
}

}  // namespace weft::probes
