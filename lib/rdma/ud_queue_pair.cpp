#include "lib/rdma/ud_queue_pair.h"

#include <cerrno>

namespace weft::rdma {

Result<std::unique_ptr<UdQueuePair>> UdQueuePair::create(Device& device, unsigned port, CompletionQueue& queue,
                                                         QueueDepth depth) {
  const std::string what = device.port_name(port) + ": cannot create a UD queue pair";
  if (device.is_iwarp())
    return make_error(Error::Kind::Unsupported, what + ": iWARP devices have only RC; probe over UDP instead");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = queue.handle();
  attributes.cap.max_send_wr = depth.send;
  attributes.cap.max_recv_wr = depth.receive;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.qp_type = IBV_QPT_UD;
  attributes.sq_sig_all = 1;
  ibv_qp* handle = ibv_create_qp(device.domain(), &attributes);
  if (handle == nullptr) {
    Error error = errno_error(errno, what);
    // qedr and others without UD say EINVAL (rdma-core PR 1171), EFA EOPNOTSUPP or ENOSYS.
    if (error.error_number == EINVAL || error.kind == Error::Kind::Unsupported) {
      error.kind = Error::Kind::Unsupported;
      error.context += " (does this device have UD? without it, probe over UDP instead)";
    }
    return error;
  }
  std::unique_ptr<UdQueuePair> pair(new UdQueuePair(device, port, handle));
  if (auto up = pair->bring_up(); !up) return up.error();
  return pair;
}

UdQueuePair::~UdQueuePair() { ibv_destroy_qp(handle_); }

Result<void> UdQueuePair::modify(ibv_qp_state state, const char* step) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  int mask = IBV_QP_STATE;
  if (state == IBV_QPS_INIT) {
    attributes.pkey_index = 0;
    attributes.port_num = static_cast<std::uint8_t>(port_);
    attributes.qkey = kQueueKey;
    mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  } else if (state == IBV_QPS_RTS) {
    attributes.sq_psn = 0;
    mask |= IBV_QP_SQ_PSN;
  }
  if (const int error = ibv_modify_qp(handle_, &attributes, mask); error != 0)
    return errno_error(
        error, device_.port_name(port_) + ": UD queue pair " + std::to_string(number()) + ": cannot go to " + step);
  return {};
}

Result<void> UdQueuePair::bring_up() {
  if (auto step = modify(IBV_QPS_INIT, "INIT"); !step) return step;
  if (auto step = modify(IBV_QPS_RTR, "RTR"); !step) return step;
  return modify(IBV_QPS_RTS, "RTS");
}

Result<void> UdQueuePair::restart() {
  if (auto step = modify(IBV_QPS_RESET, "RESET"); !step) return step;
  return bring_up();
}

Result<void> UdQueuePair::post_receive(std::uint64_t work_id, ibv_sge buffer) {
  ibv_recv_wr request{};
  request.wr_id = work_id;
  request.sg_list = &buffer;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(handle_, &request, &bad); error != 0) {
    if (error == ENOMEM) return make_error(Error::Kind::Transient, device_.port_name(port_) + ": receive queue full");
    return errno_error(error, device_.port_name(port_) + ": cannot post a receive buffer");
  }
  return {};
}

Result<void> UdQueuePair::post_send(std::uint64_t work_id, ibv_sge buffer, ibv_ah* to, std::uint32_t queue_pair) {
  ibv_send_wr request{};
  request.wr_id = work_id;
  request.sg_list = &buffer;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud.ah = to;
  request.wr.ud.remote_qpn = queue_pair;
  request.wr.ud.remote_qkey = kQueueKey;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(handle_, &request, &bad); error != 0) {
    if (error == ENOMEM) return make_error(Error::Kind::Transient, device_.port_name(port_) + ": send queue full");
    return errno_error(error, device_.port_name(port_) + ": cannot post a send");
  }
  return {};
}

}  // namespace weft::rdma
