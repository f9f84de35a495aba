#include "probes/rdma/rdma_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/rdma/address_handles.h"
#include "lib/rdma/completion_queue.h"
#include "lib/rdma/device.h"
#include "lib/rdma/gid_choice.h"
#include "lib/rdma/grh.h"
#include "lib/rdma/source_port.h"
#include "probes/rdma/lane.h"

namespace weft::probes {
namespace {

constexpr unsigned kMaxFixedPortLanes = 64;  // of a role, where each lane has one source port
constexpr unsigned kMaxChosenPorts = 1024;   // of a role, where flow labels choose
constexpr unsigned kBatch = 64;              // completions read at once
constexpr unsigned kPollLimit = 1024;        // completions of a role in one poll(), so that it ends
constexpr std::uint8_t kHopLimit = 64;       // 1 does not leave the subnet (rdma-core PR 1637)
constexpr Nanos kPresenceCheck_ns = 200 * kMillisecond;
constexpr Nanos kRestartPause_ns = 200 * kMillisecond;
constexpr std::size_t kMaxWaiting = 512;              // packets held until their address is resolved
constexpr Nanos kMaxWaiting_ns = 400 * kMillisecond;  // less than the time a prober waits for its answer

// Depth of a lane that serves everything, and of one of many.
constexpr rdma::QueueDepth kWholeDepth{.send = 512, .receive = 2048};
constexpr rdma::QueueDepth kShareDepth{.send = 64, .receive = 128};

const Clock& system_clock() {
  static const SystemClock clock;  // stateless
  return clock;
}

class RdmaTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> open(const RdmaTransportOptions& options);
  ~RdmaTransport() override;

  std::string name() const override { return "rdma"; }
  model::TimestampRung rung() const override { return sides_[0].queue->clock().rung; }
  model::Gid local_address() const override { return gid_.gid; }
  std::vector<LaneInfo> lanes() const override;
  std::vector<std::uint16_t> source_ports(Role role) const override;
  Result<void> want_ports(Role role, unsigned count) override;
  std::size_t max_payload_bytes() const override { return options_.max_payload_bytes; }
  Result<void> send(Role role, std::uint32_t lane_number, std::uint16_t source_port, const Destination& to,
                    std::uint8_t traffic_class, std::span<const std::uint8_t> payload, std::uint64_t cookie) override;
  Result<void> poll(TransportEvents& events) override;
  std::vector<int> wait_fds() const override;
  void note_ready(int fd) override { device_ready_ = device_ready_ || fd == device_->event_fd(); }
  Result<bool> arm() override;
  Nanos elapsed_ns(Stamp from, Stamp to) const override { return sides_[0].queue->clock().elapsed_ns(from, to); }
  std::optional<std::uint32_t> take_responder_low_water() override;

 private:
  // A role's queue pairs share one completion queue, apart from the other role's.
  struct Side {
    Role role = Role::Prober;
    std::unique_ptr<rdma::CompletionQueue> queue;
    std::vector<std::unique_ptr<Lane>> lanes;
    std::vector<rdma::Completion> early;  // read by arm(), delivered by the next poll()
    unsigned max_lanes = 0;
    unsigned ports_wanted = 0;
  };

  // A packet whose address handle is being made. Refusing it would look like a lost acknowledgement to the peer.
  struct Waiting {
    Lane* lane = nullptr;
    rdma::AddressKey key;
    std::uint32_t number = 0;
    std::vector<std::uint8_t> payload;
    std::uint64_t cookie = 0;
    Nanos since_ns = 0;
  };

  explicit RdmaTransport(const RdmaTransportOptions& options)
      : options_(options), clock_(options.clock != nullptr ? *options.clock : system_clock()) {}
  Result<void> open_device();
  Result<void> open_sides();
  void start_address_handles();
  Result<ibv_ah*> make_address_handle(const rdma::AddressKey& key);

  Side& side(Role role) { return sides_[role == Role::Prober ? 0 : 1]; }
  const Side& side(Role role) const { return sides_[role == Role::Prober ? 0 : 1]; }
  bool ports_are_fixed() const { return device_->is_rxe(); }
  std::uint16_t first_port(const Lane& lane) const;
  Lane* lane_for(Side& side, std::uint32_t number, std::uint16_t source_port);
  Lane* lane_of(Side& side, const WorkId& id);
  std::string where() const { return device_->port_name(options_.port); }

  Result<void> check_device();
  Result<void> poll_side(Side& side, TransportEvents& events);
  void deliver(Side& side, const rdma::Completion& completion, TransportEvents& events);
  void deliver_send(Lane& lane, const WorkId& id, const rdma::Completion& completion, TransportEvents& events);
  void deliver_arrival(Lane& lane, const WorkId& id, const rdma::Completion& completion, TransportEvents& events);
  void count_phantom();
  void restart_broken(Side& side, TransportEvents& events);
  Result<void> send_waiting(const Waiting& packet, Nanos now, bool& still_waiting);
  void send_waiting(TransportEvents& events);
  void wake();

  RdmaTransportOptions options_;
  const Clock& clock_;
  std::unique_ptr<rdma::Device> device_;
  model::GidEntry gid_;
  rdma::HeaderKind header_ = rdma::HeaderKind::Ipv4;
  Fd early_fd_;  // readable when an address was resolved
  std::atomic<bool> woken_ = false;
  bool device_ready_ = false;  // its descriptor was readable
  std::array<Side, 2> sides_;
  std::unique_ptr<rdma::AddressHandles> handles_;
  std::vector<Waiting> waiting_;
  rdma::QueueDepth depth_;
  Nanos checked_ns_ = 0;
  Nanos restarted_ns_ = 0;
  std::optional<std::uint32_t> low_water_;
  std::uint64_t phantoms_ = 0;
  log::Limiter restart_log_{60 * kSecond};
  log::Limiter phantom_log_{60 * kSecond};
};

Result<std::unique_ptr<Transport>> RdmaTransport::open(const RdmaTransportOptions& options) {
  std::unique_ptr<RdmaTransport> transport(new RdmaTransport(options));
  if (auto step = transport->open_device(); !step) return step.error();
  if (auto step = transport->open_sides(); !step) return step.error();
  return transport;
}

RdmaTransport::~RdmaTransport() {
  for (Side& each : sides_) each.lanes.clear();
  handles_.reset();
  for (Side& each : sides_) each.queue.reset();
}

Result<void> RdmaTransport::open_device() {
  auto device = rdma::Device::open(options_.device);
  if (!device) return device.error();
  device_ = std::move(*device);
  auto info = device_->query_port(options_.port);
  if (!info) return info.error();
  const model::RdmaPort& port = info->port;

  if (port.link_layer == model::LinkLayer::InfiniBand)
    return make_error(Error::Kind::Unsupported,
                      where() + ": on InfiniBand a peer is addressed by LID" +
                          (info->grh_required ? " and GRH (this port requires one)" : "") +
                          ", which needs subnet manager data; probe over UDP on its IPoIB interface instead");
  // The choice comes first: a wrong index must not read as a port problem (and the other way round).
  auto choice = rdma::choose_gid(options_.device, port, options_.gid_index);
  if (port.state != model::PortState::Active && (choice || choice.error().kind == Error::Kind::NotFound))
    return make_error(Error::Kind::Transient, where() + ": the port is " + std::string(model::to_string(port.state)) +
                                                  ", not ACTIVE; set its interface" +
                                                  (port.netdev.empty() ? "" : " " + port.netdev) +
                                                  " up and check the cable");
  if (!choice) {
    Error error = choice.error();
    if (error.kind == Error::Kind::NotFound) error.kind = Error::Kind::Transient;  // an address may come
    return error;
  }
  if (port.active_mtu_bytes && options_.max_payload_bytes > *port.active_mtu_bytes)
    return make_error(Error::Kind::Invalid,
                      where() + ", GID " + std::to_string(choice->entry.index) + " (" + choice->entry.gid.to_string() +
                          "): cannot open queue pairs: a payload of " + std::to_string(options_.max_payload_bytes) +
                          " bytes does not fit the MTU of " + std::to_string(*port.active_mtu_bytes));
  gid_ = choice->entry;
  header_ = gid_.gid.is_ipv4_mapped() ? rdma::HeaderKind::Ipv4 : rdma::HeaderKind::Ipv6;
  log::info("rdma", "GID chosen", {{"device", options_.device}, {"port", options_.port}, {"gid", choice->reason}});
  return {};
}

Result<void> RdmaTransport::open_sides() {
  depth_ = ports_are_fixed() ? kShareDepth : kWholeDepth;
  if (options_.receive_buffers > 0) depth_.receive = options_.receive_buffers;
  const auto& limits = device_->attributes().orig_attr;
  const unsigned max_requests = limits.max_qp_wr > 0 ? static_cast<unsigned>(limits.max_qp_wr) : depth_.receive;
  depth_.send = std::min(depth_.send, max_requests);
  depth_.receive = std::min({depth_.receive, max_requests, 0x10000u});

  early_fd_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!early_fd_) return errno_error(errno, where() + ": cannot create an event descriptor");
  const unsigned per_lane = depth_.send + depth_.receive;
  const unsigned max_entries = limits.max_cqe > 0 ? static_cast<unsigned>(limits.max_cqe) : per_lane;
  for (Side& each : sides_) {
    each.role = &each == sides_.data() ? Role::Prober : Role::Responder;
    each.max_lanes = std::max(1u, std::min(ports_are_fixed() ? kMaxFixedPortLanes : 1u, max_entries / per_lane));
    auto queue = rdma::CompletionQueue::create(*device_, each.max_lanes * per_lane, clock_);
    if (!queue) return queue.error();
    each.queue = std::move(*queue);
  }
  start_address_handles();
  if (auto made = want_ports(Role::Prober, std::max(1u, options_.prober_ports)); !made) return made;
  if (!options_.responder) return {};
  return want_ports(Role::Responder, std::max(1u, options_.responder_ports));
}

void RdmaTransport::start_address_handles() {
  handles_ = std::make_unique<rdma::AddressHandles>([this](const auto& key) { return make_address_handle(key); },
                                                    [](ibv_ah* handle) { ibv_destroy_ah(handle); }, [this] { wake(); },
                                                    clock_, rdma::AddressLimits{});
}

// On the handles' own thread: touches nothing but constants of this object.
Result<ibv_ah*> RdmaTransport::make_address_handle(const rdma::AddressKey& key) {
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = static_cast<std::uint8_t>(options_.port);
  std::copy(key.gid.raw.begin(), key.gid.raw.end(), attributes.grh.dgid.raw);
  attributes.grh.sgid_index = static_cast<std::uint8_t>(gid_.index);
  attributes.grh.hop_limit = kHopLimit;
  attributes.grh.traffic_class = key.traffic_class;
  attributes.grh.flow_label = key.flow_label;
  ibv_ah* handle = ibv_create_ah(device_->domain(), &attributes);
  if (handle != nullptr) return handle;
  return errno_error(errno, where() + ": cannot make an address handle from GID " + gid_.gid.to_string() + " (index " +
                                std::to_string(gid_.index) + ") to GID " + key.gid.to_string() +
                                " (no route, or the next hop does not answer ARP or ND)");
}

std::vector<LaneInfo> RdmaTransport::lanes() const {
  std::vector<LaneInfo> infos;
  for (const Side& each : sides_)
    for (const auto& lane : each.lanes) infos.push_back({each.role, lane->number(), first_port(*lane)});
  return infos;
}

std::uint16_t RdmaTransport::first_port(const Lane& lane) const {
  return ports_are_fixed() ? rdma::rxe_source_port(lane.number()) : rdma::spread_source_port(0);
}

std::vector<std::uint16_t> RdmaTransport::source_ports(Role role) const {
  const Side& it = side(role);
  if (!ports_are_fixed()) return rdma::spread_of_source_ports(it.lanes.empty() ? 0 : it.ports_wanted);
  std::vector<std::uint16_t> ports;
  for (const auto& lane : it.lanes) {
    const std::uint16_t port = first_port(*lane);
    // Two queue pairs can hash to one port; it is one path.
    if (std::find(ports.begin(), ports.end(), port) == ports.end()) ports.push_back(port);
  }
  return ports;
}

Result<void> RdmaTransport::want_ports(Role role, unsigned count) {
  Side& it = side(role);
  constexpr unsigned kSpread = 16;
  if (!ports_are_fixed()) it.ports_wanted = std::clamp(count, std::max(kSpread, it.ports_wanted), kMaxChosenPorts);
  while (it.lanes.empty() || (ports_are_fixed() && source_ports(role).size() < count)) {
    if (it.lanes.size() >= it.max_lanes)
      return make_error(Error::Kind::Exhausted, where() + ": " + std::to_string(count) +
                                                    " source ports asked for, at most " +
                                                    std::to_string(source_ports(role).size()) + " can be had");
    LaneOptions lane_options;
    lane_options.index = static_cast<unsigned>(it.lanes.size());
    lane_options.role = role;
    lane_options.port = options_.port;
    lane_options.depth = depth_;
    lane_options.max_payload_bytes = options_.max_payload_bytes;
    auto lane = Lane::open(*device_, *it.queue, lane_options);
    if (!lane) return lane.error();
    it.lanes.push_back(std::move(*lane));
  }
  return {};
}

Lane* RdmaTransport::lane_for(Side& it, std::uint32_t number, std::uint16_t source_port) {
  if (it.lanes.empty()) return nullptr;
  if (!ports_are_fixed()) return it.lanes.front().get();
  for (const auto& lane : it.lanes) {
    const bool match = it.role == Role::Responder ? lane->number() == number : first_port(*lane) == source_port;
    if (match) return lane.get();
  }
  return nullptr;
}

Result<void> RdmaTransport::send(Role role, std::uint32_t lane_number, std::uint16_t source_port, const Destination& to,
                                 std::uint8_t traffic_class, std::span<const std::uint8_t> payload,
                                 std::uint64_t cookie) {
  if (payload.size() > options_.max_payload_bytes)
    return make_error(Error::Kind::Invalid, where() + ": a payload of " + std::to_string(payload.size()) +
                                                " bytes is over " + std::to_string(options_.max_payload_bytes));
  Lane* lane = lane_for(side(role), lane_number, source_port);
  if (lane == nullptr)
    return make_error(Error::Kind::Invalid, where() + ": no queue pair for source port " + std::to_string(source_port) +
                                                ", number " + std::to_string(lane_number));
  rdma::AddressKey key{to.gid, 0, traffic_class};
  if (!ports_are_fixed()) key.flow_label = rdma::flow_label_of_source_port(source_port);
  auto handle = handles_->get(key);
  if (!handle) return handle.error();
  if (*handle != nullptr) return lane->send(*handle, to.number, payload, cookie);
  if (waiting_.size() >= kMaxWaiting)
    return make_error(Error::Kind::Transient, where() + ": too many packets wait for addresses to be resolved");
  waiting_.push_back({lane, key, to.number, {payload.begin(), payload.end()}, cookie, clock_.monotonic_ns()});
  return {};
}

Result<void> RdmaTransport::send_waiting(const Waiting& packet, Nanos now, bool& still_waiting) {
  const auto handle = handles_->get(packet.key);
  if (!handle) return handle.error();
  if (*handle != nullptr) return packet.lane->send(*handle, packet.number, packet.payload, packet.cookie);
  if (now - packet.since_ns >= kMaxWaiting_ns)
    return make_error(Error::Kind::Timeout, where() + ": GID " + packet.key.gid.to_string() +
                                                " was not resolved in time (does the next hop answer ARP or ND?)");
  still_waiting = true;
  return {};
}

void RdmaTransport::send_waiting(TransportEvents& events) {
  if (waiting_.empty()) return;
  const Nanos now = clock_.monotonic_ns();
  // Events may send more, so the list is taken first.
  std::vector<Waiting> packets = std::move(waiting_);
  waiting_.clear();
  std::vector<SendDone> failed;
  for (Waiting& packet : packets) {
    bool still_waiting = false;
    const auto sent = send_waiting(packet, now, still_waiting);
    if (still_waiting) {
      waiting_.push_back(std::move(packet));
    } else if (!sent) {
      failed.push_back({packet.lane->role(), packet.cookie, false, 0, sent.error().message()});
    }
  }
  for (const SendDone& done : failed) events.on_send_done(done);
}

void RdmaTransport::wake() {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable already.
  [[maybe_unused]] const auto written = ::write(early_fd_.get(), &one, sizeof one);
  woken_ = true;  // after the write, so that whoever sees it finds something to read
}

Result<void> RdmaTransport::check_device() {
  bool gids_changed = false;
  const bool due = clock_.monotonic_ns() - checked_ns_ >= kPresenceCheck_ns;
  if (!due && !std::exchange(device_ready_, false)) return {};
  while (const auto event = device_->next_event()) {
    if (event->kind == rdma::DeviceEvent::Gone) return make_error(Error::Kind::NotFound, where() + ": device is gone");
    if (event->kind == rdma::DeviceEvent::GidsChanged) gids_changed = true;
    if (event->kind != rdma::DeviceEvent::QueuePairFatal) continue;
    for (Side& each : sides_)
      for (const auto& lane : each.lanes)
        if (lane->number() == event->queue_pair) lane->mark_broken();
  }
  if (!gids_changed && !due) return {};
  checked_ns_ = clock_.monotonic_ns();
  handles_->sweep();
  // rxe gives no event: its node in sysfs goes first, then the kernel waits for us to close.
  if (!device_->is_present()) return make_error(Error::Kind::NotFound, where() + ": device is gone");
  if (gids_changed) {
    const auto current = device_->query_gid(options_.port, gid_.index);
    if (!current || current->gid != gid_.gid)
      return make_error(Error::Kind::NotFound, where() + ": GID " + gid_.gid.to_string() + " at index " +
                                                   std::to_string(gid_.index) + " is gone");
  }
  return {};
}

Result<void> RdmaTransport::poll(TransportEvents& events) {
  if (auto present = check_device(); !present) return present;
  if (woken_.exchange(false)) {
    std::uint64_t ignored = 0;
    [[maybe_unused]] const auto drained = ::read(early_fd_.get(), &ignored, sizeof ignored);
  }
  send_waiting(events);
  for (Side& each : sides_)
    if (auto polled = poll_side(each, events); !polled) return polled;
  const Nanos now = clock_.monotonic_ns();
  if (now - restarted_ns_ >= kRestartPause_ns)
    for (Side& each : sides_) restart_broken(each, events);
  return {};
}

Result<void> RdmaTransport::poll_side(Side& it, TransportEvents& events) {
  std::vector<rdma::Completion> batch = std::move(it.early);
  it.early.clear();
  for (unsigned seen = 0; seen < kPollLimit;) {
    if (batch.empty())
      if (auto polled = it.queue->poll(batch, kBatch); !polled) return polled;
    if (batch.empty()) break;
    seen += static_cast<unsigned>(batch.size());
    for (const rdma::Completion& completion : batch) deliver(it, completion, events);
    batch.clear();
    for (const auto& lane : it.lanes) {
      if (it.role == Role::Responder && !lane->broken())
        low_water_ = std::min(low_water_.value_or(lane->posted()), lane->posted());
      // A receive that cannot be posted now is tried again with the next batch; low water shows it.
      if (auto filled = lane->refill(); !filled && filled.error().kind != Error::Kind::Transient) lane->mark_broken();
    }
  }
  return {};
}

Lane* RdmaTransport::lane_of(Side& it, const WorkId& id) {
  return id.lane < it.lanes.size() ? it.lanes[id.lane].get() : nullptr;
}

void RdmaTransport::deliver(Side& it, const rdma::Completion& completion, TransportEvents& events) {
  const WorkId id = WorkId::unpack(completion.work_id);
  Lane* lane = lane_of(it, id);
  if (lane == nullptr) return;
  if (id.receive)
    deliver_arrival(*lane, id, completion, events);
  else
    deliver_send(*lane, id, completion, events);
}

// After a restart some are left over from before; any other is a bug of the provider. Neither may do harm.
void RdmaTransport::count_phantom() {
  ++phantoms_;
  std::uint64_t held = 0;
  if (phantom_log_.allow(clock_.monotonic_ns(), held))
    log::info("rdma", "completions of requests not in flight are ignored",
              {{"device", options_.device}, {"count", phantoms_}});
}

void RdmaTransport::deliver_send(Lane& lane, const WorkId& id, const rdma::Completion& completion,
                                 TransportEvents& events) {
  const auto cookie = lane.finish_send(id);
  if (!cookie) return count_phantom();
  SendDone done;
  done.role = lane.role();
  done.cookie = *cookie;
  done.ok = completion.status == IBV_WC_SUCCESS;
  done.stamp = completion.stamp;
  if (!done.ok) {
    lane.mark_broken();
    done.error = where() + ", queue pair " + std::to_string(lane.number()) +
                 ": send failed: " + ibv_wc_status_str(completion.status);
  }
  events.on_send_done(done);
}

void RdmaTransport::deliver_arrival(Lane& lane, const WorkId& id, const rdma::Completion& completion,
                                    TransportEvents& events) {
  const auto bytes = lane.finish_receive(id, completion.byte_len);
  if (!bytes) return count_phantom();
  if (completion.status != IBV_WC_SUCCESS) return lane.mark_broken();
  if (bytes->size() < rdma::kGrhBytes) return;
  Arrival arrival;
  arrival.role = lane.role();
  arrival.local_port = first_port(lane);
  arrival.local_number = lane.number();
  arrival.source.number = completion.source_queue_pair;
  arrival.payload = bytes->subspan(rdma::kGrhBytes);
  arrival.stamp = completion.stamp;
  arrival.handled_ns = completion.polled_ns;
  if (completion.has_grh) {
    if (const auto header = rdma::parse_grh(*bytes, header_)) {
      arrival.source.gid = header->source;
      arrival.tos = header->tos;
      arrival.hop_limit = header->hop_limit;
    }
  }
  events.on_arrival(arrival);
}

void RdmaTransport::restart_broken(Side& it, TransportEvents& events) {
  for (const auto& lane : it.lanes) {
    if (!lane->broken()) continue;
    restarted_ns_ = clock_.monotonic_ns();
    auto lost = lane->restart();
    std::uint64_t held = 0;
    if (restart_log_.allow(restarted_ns_, held))
      log::info("rdma", lost ? "queue pair restarted after an error" : "queue pair cannot be restarted",
                {{"device", options_.device},
                 {"queue_pair", lane->number()},
                 {"reason", lost ? "" : lost.error().message()},
                 {"others", held}});
    if (!lost) continue;
    for (const std::uint64_t cookie : *lost) {
      SendDone done;
      done.role = it.role;
      done.cookie = cookie;
      done.error = where() + ", queue pair " + std::to_string(lane->number()) + ": send lost in a restart";
      events.on_send_done(done);
    }
  }
}

std::vector<int> RdmaTransport::wait_fds() const {
  return {sides_[0].queue->event_fd(), sides_[1].queue->event_fd(), early_fd_.get(), device_->event_fd()};
}

Result<bool> RdmaTransport::arm() {
  // Addresses that are awaited, and a device that goes without a word, raise no event.
  bool look_again = !waiting_.empty() || clock_.monotonic_ns() - checked_ns_ >= kPresenceCheck_ns;
  for (Side& each : sides_) {
    const auto fresh = each.queue->arm();
    if (!fresh) return fresh.error();
    if (!*fresh) continue;
    if (auto polled = each.queue->poll(each.early, kBatch); !polled) return polled.error();
    look_again = look_again || !each.early.empty();
  }
  return look_again;
}

std::optional<std::uint32_t> RdmaTransport::take_responder_low_water() {
  const auto low = low_water_;
  low_water_.reset();
  if (low) return low;
  if (sides_[1].lanes.empty()) return std::nullopt;
  std::uint32_t least = sides_[1].lanes.front()->posted();
  for (const auto& lane : sides_[1].lanes) least = std::min(least, lane->posted());
  return least;
}

}  // namespace

Result<std::unique_ptr<Transport>> open_rdma_transport(const RdmaTransportOptions& options) {
  return RdmaTransport::open(options);
}

}  // namespace weft::probes
