#include "probes/ping/udp_transport.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <net/if.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>

#include "lib/base/fd.h"
#include "probes/ping/address.h"

namespace weft::probes {
namespace {

constexpr int kHopLimit = 64;
constexpr unsigned kBatch = 16;
constexpr unsigned kBatchesPerPoll = 16;
constexpr std::size_t kBufferBytes = 2048;
constexpr unsigned kStampsMissedIsNone = 8;

// A send whose transmit stamp has not come yet. fallback: the packet clock just after the call.
struct Waiting {
  std::uint32_t id = 0;
  std::uint64_t cookie = 0;
  Stamp fallback = 0;
  Nanos sent_ns = 0;
};

struct Lane {
  Role role = Role::Prober;
  Fd socket;
  std::uint16_t port = 0;
  std::uint32_t next_id = 0;
  std::deque<Waiting> waiting;
};

template <typename T>
T read_cmsg(const cmsghdr* header) {
  T value{};
  std::memcpy(&value, CMSG_DATA(header), sizeof value);
  return value;
}

Stamp to_stamp(const timespec& time) {
  return static_cast<Stamp>(time.tv_sec) * static_cast<Stamp>(kSecond) + static_cast<Stamp>(time.tv_nsec);
}

class UdpTransport final : public Transport {
 public:
  UdpTransport(UdpTransportOptions options, const Clock& clock) : options_(std::move(options)), clock_(clock) {
    for (unsigned i = 0; i < kBatch; ++i) {
      vectors_[i] = {buffers_[i].data(), buffers_[i].size()};
      messages_[i].msg_hdr.msg_iov = &vectors_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
      make_room(i);
    }
  }

  Result<void> open() {
    v4_ = options_.local.is_ipv4_mapped();
    if (!options_.interface.empty()) scope_ = if_nametoindex(options_.interface.c_str());
    if (options_.local.is_link_local() && scope_ == 0) {
      return make_error(Error::Kind::Invalid, "the link-local address " + options_.local.to_string() +
                                                  " needs the name of its interface to probe over UDP");
    }
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) return errno_error(errno, "epoll_create1");
    for (const std::uint16_t port : options_.prober_ports) {
      if (const auto opened = open_lane(Role::Prober, port); !opened) return opened;
    }
    for (const std::uint16_t port : options_.responder_ports) {
      if (const auto opened = open_lane(Role::Responder, port); !opened) return opened;
    }
    return {};
  }

  std::string name() const override { return "udp"; }
  model::TimestampRung rung() const override {
    return stamps_seen_ || stamps_missed_ < kStampsMissedIsNone ? model::TimestampRung::KernelSoftware
                                                                : model::TimestampRung::Software;
  }
  model::Gid local_address() const override { return options_.local; }

  std::vector<LaneInfo> lanes() const override {
    std::vector<LaneInfo> infos;
    for (const auto& lane : lanes_) infos.push_back({lane->role, lane->port, lane->port});
    return infos;
  }

  std::vector<std::uint16_t> source_ports(Role role) const override {
    std::vector<std::uint16_t> ports;
    for (const auto& lane : lanes_) {
      if (lane->role == role) ports.push_back(lane->port);
    }
    return ports;
  }

  Result<void> want_ports(Role role, unsigned count) override {
    while (count_of(role) < count) {
      if (const auto opened = open_lane(role, 0); !opened) return opened;
    }
    return {};
  }

  std::size_t max_payload_bytes() const override { return options_.max_payload_bytes; }

  Result<void> send(Role role, std::uint32_t lane_number, std::uint16_t source_port, const Destination& to,
                    std::uint8_t traffic_class, std::span<const std::uint8_t> payload, std::uint64_t cookie) override {
    if (to.number > 0xffff) return make_error(Error::Kind::Invalid, std::to_string(to.number) + " is no UDP port");
    if (to.gid.is_ipv4_mapped() != v4_) {
      return make_error(Error::Kind::Invalid, "no way from " + options_.local.to_string() + " to " +
                                                  to.gid.to_string() + ": one is IPv4, the other IPv6");
    }
    const auto port = role == Role::Responder ? static_cast<std::uint16_t>(lane_number) : source_port;
    Lane* lane = find(role, port);
    if (lane == nullptr && role == Role::Prober) {
      if (const auto opened = open_lane(role, port); !opened) return opened;
      lane = find(role, port);
    }
    if (lane == nullptr) {
      return make_error(Error::Kind::NotFound,
                        "no lane with UDP port " + std::to_string(port) + " on " + options_.local.to_string());
    }
    const int error = send_on(*lane, to, traffic_class, payload);
    if (error != 0) {
      // Whether the kernel took an id for the failed packet depends on where it failed; start the count anew.
      if (role == Role::Prober) restart_ids(*lane);
      return errno_error(error, "sending " + std::to_string(payload.size()) + " bytes from UDP " +
                                    to_text(options_.local, lane->port) + " to " +
                                    to_text(to.gid, static_cast<std::uint16_t>(to.number)) +
                                    (error == EMSGSIZE ? " (more than the path MTU)" : ""));
    }
    const auto stamp = static_cast<Stamp>(clock_.wall_ns());
    if (role == Role::Responder) {
      // Its T4 rides in the packet itself, so a transmit stamp would only cost.
      done_.push_back({role, cookie, true, stamp, {}});
    } else {
      lane->waiting.push_back({lane->next_id++, cookie, stamp, clock_.monotonic_ns()});
    }
    return {};
  }

  Result<void> poll(TransportEvents& events) override {
    std::array<epoll_event, 64> ready;
    const int count = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    if (count < 0 && errno != EINTR) return errno_error(errno, "epoll_wait on probe sockets");
    for (int i = 0; i < count; ++i) {
      Lane& lane = *lanes_[ready[static_cast<std::size_t>(i)].data.u32];
      if ((ready[static_cast<std::size_t>(i)].events & EPOLLERR) != 0) read_send_stamps(lane);
    }
    give_up_on_stamps();
    deliver_done(events);
    for (int i = 0; i < count; ++i) {
      if ((ready[static_cast<std::size_t>(i)].events & EPOLLIN) == 0) continue;
      Lane& lane = *lanes_[ready[static_cast<std::size_t>(i)].data.u32];
      if (const auto received = receive(lane, events); !received) return received;
    }
    deliver_done(events);
    return {};
  }

  // One epoll descriptor stands for all sockets, also those opened later.
  std::vector<int> wait_fds() const override { return {epoll_.get()}; }
  // Its descriptor tells of whatever is there; but send stamps come at once, and looking is cheaper than waking for
  // them.
  Result<bool> arm() override {
    return !done_.empty() ||
           std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return !lane->waiting.empty(); });
  }
  Nanos elapsed_ns(Stamp from, Stamp to) const override { return static_cast<Nanos>(to - from); }
  std::optional<Stamp> now() const override { return static_cast<Stamp>(clock_.wall_ns()); }
  std::optional<std::uint32_t> take_responder_low_water() override { return std::nullopt; }

 private:
  unsigned count_of(Role role) const {
    return static_cast<unsigned>(
        std::count_if(lanes_.begin(), lanes_.end(), [&](const auto& lane) { return lane->role == role; }));
  }

  Lane* find(Role role, std::uint16_t port) const {
    for (const auto& lane : lanes_) {
      if (lane->role == role && lane->port == port) return lane.get();
    }
    return nullptr;
  }

  Result<void> open_lane(Role role, std::uint16_t port) {
    if (count_of(role) >= options_.max_lanes) {
      return make_error(Error::Kind::Exhausted, "no more than " + std::to_string(options_.max_lanes) + " " +
                                                    (role == Role::Prober ? "prober" : "responder") +
                                                    " ports are opened on " + options_.local.to_string());
    }
    auto lane = std::make_unique<Lane>();
    lane->role = role;
    lane->socket.reset(::socket(v4_ ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!lane->socket) return errno_error(errno, "opening a UDP socket");
    if (const auto set = set_options(*lane); !set) return set;
    const SocketAddress local = to_socket_address(options_.local, port, scope_);
    if (::bind(lane->socket.get(), local.get(), local.length) != 0) return bind_error(errno, port);
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    if (::getsockname(lane->socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
      return errno_error(errno, "getsockname");
    }
    lane->port = port_of(bound);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(lanes_.size());
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, lane->socket.get(), &event) != 0) return errno_error(errno, "epoll_ctl");
    lanes_.push_back(std::move(lane));
    return {};
  }

  Error bind_error(int error, std::uint16_t port) const {
    const std::string where = "UDP port " + std::to_string(port) + " on " + options_.local.to_string();
    if (error == EADDRINUSE) {
      return Error{Error::Kind::Exhausted, error,
                   "binding " + where + " (ss -ulpn sport = :" + std::to_string(port) + " shows who has it)"};
    }
    if (error == EADDRNOTAVAIL) {
      return Error{Error::Kind::NotFound, error,
                   "binding " + where + ": is " + options_.local.to_string() + " an address of this host?"};
    }
    return errno_error(error, "binding " + where);
  }

  Result<void> set_options(Lane& lane) const {
    const int fd = lane.socket.get();
    const auto set = [&](int level, int name, int value, const char* what) -> Result<void> {
      if (::setsockopt(fd, level, name, &value, sizeof value) == 0) return {};
      return errno_error(errno, std::string("setting ") + what + " on a probe socket");
    };
    Result<void> result;
    const auto also = [&](int level, int name, int value, const char* what) {
      if (result) result = set(level, name, value, what);
    };
    if (v4_) {
      also(IPPROTO_IP, IP_RECVTOS, 1, "IP_RECVTOS");
      also(IPPROTO_IP, IP_RECVTTL, 1, "IP_RECVTTL");
      also(IPPROTO_IP, IP_TTL, kHopLimit, "IP_TTL");
      // A probe that is cut into fragments tells nothing about the path of a packet.
      also(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, "IP_MTU_DISCOVER");
    } else {
      also(IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY");
      also(IPPROTO_IPV6, IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS");
      also(IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1, "IPV6_RECVHOPLIMIT");
      also(IPPROTO_IPV6, IPV6_UNICAST_HOPS, kHopLimit, "IPV6_UNICAST_HOPS");
      also(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO, "IPV6_MTU_DISCOVER");
    }
    also(SOL_SOCKET, SO_TIMESTAMPING, stamp_flags(lane.role), "SO_TIMESTAMPING");
    // A burst that waits while this process does not run must not look like network loss; the kernel may give less.
    if (result) (void)set(SOL_SOCKET, SO_RCVBUF, 1 << 20, "SO_RCVBUF");
    return result;
  }

  static int stamp_flags(Role role) {
    const int receive = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    if (role == Role::Responder) return receive;
    return receive | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY;
  }

  int send_on(const Lane& lane, const Destination& to, std::uint8_t traffic_class,
              std::span<const std::uint8_t> payload) const {
    SocketAddress address = to_socket_address(to.gid, static_cast<std::uint16_t>(to.number), scope_);
    iovec vector{const_cast<std::uint8_t*>(payload.data()), payload.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_name = &address.storage;
    message.msg_namelen = address.length;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = v4_ ? IPPROTO_IP : IPPROTO_IPV6;
    header->cmsg_type = v4_ ? IP_TOS : IPV6_TCLASS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int tos = traffic_class;
    std::memcpy(CMSG_DATA(header), &tos, sizeof tos);
    while (::sendmsg(lane.socket.get(), &message, 0) < 0) {
      if (errno != EINTR) return errno;
    }
    return 0;
  }

  void restart_ids(Lane& lane) {
    for (const Waiting& entry : lane.waiting) done_.push_back({lane.role, entry.cookie, true, entry.fallback, {}});
    lane.waiting.clear();
    // OPT_ID counts from zero each time it is switched on (Documentation/networking/timestamping.rst 1.3.4).
    const int off = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    const int on = stamp_flags(lane.role);
    (void)::setsockopt(lane.socket.get(), SOL_SOCKET, SO_TIMESTAMPING, &off, sizeof off);
    (void)::setsockopt(lane.socket.get(), SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof on);
    // Stamps of before the restart would now be taken for new ones.
    drain_error_queue(lane, [](std::uint32_t, Stamp) { return true; });
    lane.next_id = 0;
  }

  // Until it is empty, or on_stamp says that no more is expected.
  template <typename OnStamp>
  void drain_error_queue(const Lane& lane, const OnStamp& on_stamp) const {
    alignas(cmsghdr) std::array<char, 512> control;
    for (;;) {
      msghdr message{};
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      if (::recvmsg(lane.socket.get(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
        if (errno == EINTR) continue;
        return;
      }
      std::optional<std::uint32_t> id;
      Stamp stamp = 0;
      for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_TIMESTAMPING) {
          stamp = to_stamp(read_cmsg<scm_timestamping>(header).ts[0]);
        } else if ((header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_RECVERR) ||
                   (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_RECVERR)) {
          const auto error = read_cmsg<sock_extended_err>(header);
          if (error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING) id = error.ee_data;
        }
      }
      if (id && stamp != 0 && !on_stamp(*id, stamp)) return;
    }
  }

  void read_send_stamps(Lane& lane) {
    drain_error_queue(lane, [&](std::uint32_t id, Stamp stamp) {
      const auto at =
          std::find_if(lane.waiting.begin(), lane.waiting.end(), [&](const Waiting& entry) { return entry.id == id; });
      if (at == lane.waiting.end()) return true;  // given up on before
      done_.push_back({lane.role, at->cookie, true, stamp, {}});
      lane.waiting.erase(at);
      stamps_seen_ = true;
      return !lane.waiting.empty();
    });
  }

  // Some drivers give no software transmit stamp, and a queueing discipline may hold a packet for long.
  void give_up_on_stamps() {
    const Nanos wait = rung() == model::TimestampRung::Software ? 0 : options_.send_stamp_wait_ns;
    for (const auto& lane : lanes_) {
      if (lane->waiting.empty()) continue;
      const Nanos now = clock_.monotonic_ns();
      while (!lane->waiting.empty() && now - lane->waiting.front().sent_ns >= wait) {
        const Waiting& entry = lane->waiting.front();
        done_.push_back({lane->role, entry.cookie, true, entry.fallback, {}});
        lane->waiting.pop_front();
        ++stamps_missed_;
      }
    }
  }

  void deliver_done(TransportEvents& events) {
    // A callback may send, which appends here.
    for (std::size_t i = 0; i < done_.size(); ++i) {
      const SendDone done = done_[i];
      events.on_send_done(done);
    }
    done_.clear();
  }

  // The kernel writes over the lengths of what it fills, and of nothing else.
  void make_room(unsigned index) {
    msghdr& header = messages_[index].msg_hdr;
    header.msg_name = &names_[index];
    header.msg_namelen = sizeof names_[index];
    header.msg_control = controls_[index].bytes.data();
    header.msg_controllen = controls_[index].bytes.size();
  }

  Result<void> receive(const Lane& lane, TransportEvents& events) {
    for (unsigned round = 0; round < kBatchesPerPoll; ++round) {
      const int count = ::recvmmsg(lane.socket.get(), messages_.data(), kBatch, MSG_DONTWAIT, nullptr);
      if (count < 0) {
        if (errno == EAGAIN || errno == EINTR) return {};
        return errno_error(errno, "receiving on UDP " + to_text(options_.local, lane.port));
      }
      const Nanos handled = clock_.monotonic_ns();
      for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
        events.on_arrival(arrival_of(lane, i, handled));
        make_room(i);
      }
      if (static_cast<unsigned>(count) < kBatch) return {};
    }
    return {};
  }

  Arrival arrival_of(const Lane& lane, unsigned index, Nanos handled) {
    msghdr& message = messages_[index].msg_hdr;
    Arrival arrival;
    arrival.role = lane.role;
    arrival.local_port = lane.port;
    arrival.local_number = lane.port;
    arrival.source = {gid_of(names_[index]), port_of(names_[index])};
    // A packet cut to the buffer keeps its size here, so the parser refuses it by its length.
    arrival.payload = std::span(buffers_[index]).first(std::min<std::size_t>(messages_[index].msg_len, kBufferBytes));
    arrival.handled_ns = handled;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      const int type = header->cmsg_type;
      if (header->cmsg_level == SOL_SOCKET && type == SCM_TIMESTAMPING) {
        arrival.stamp = to_stamp(read_cmsg<scm_timestamping>(header).ts[0]);
      } else if (header->cmsg_level == IPPROTO_IP && type == IP_TOS) {
        arrival.tos = read_cmsg<std::uint8_t>(header);
      } else if (header->cmsg_level == IPPROTO_IP && type == IP_TTL) {
        arrival.hop_limit = static_cast<std::uint8_t>(read_cmsg<int>(header));
      } else if (header->cmsg_level == IPPROTO_IPV6 && type == IPV6_TCLASS) {
        arrival.tos = static_cast<std::uint8_t>(read_cmsg<int>(header));
      } else if (header->cmsg_level == IPPROTO_IPV6 && type == IPV6_HOPLIMIT) {
        arrival.hop_limit = static_cast<std::uint8_t>(read_cmsg<int>(header));
      }
    }
    // The kernel switches receive stamps on a moment after the first socket asks for them.
    if (arrival.stamp == 0) arrival.stamp = static_cast<Stamp>(clock_.wall_ns());
    return arrival;
  }

  struct Control {
    alignas(cmsghdr) std::array<char, 256> bytes;
  };

  const UdpTransportOptions options_;
  const Clock& clock_;
  bool v4_ = true;
  unsigned scope_ = 0;
  bool stamps_seen_ = false;
  unsigned stamps_missed_ = 0;
  Fd epoll_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<SendDone> done_;
  std::array<std::array<std::uint8_t, kBufferBytes>, kBatch> buffers_;
  std::array<Control, kBatch> controls_;
  std::array<sockaddr_storage, kBatch> names_;
  std::array<iovec, kBatch> vectors_;
  std::array<mmsghdr, kBatch> messages_{};
};

}  // namespace

Result<std::unique_ptr<Transport>> open_udp_transport(const UdpTransportOptions& options, const Clock& clock) {
  auto transport = std::make_unique<UdpTransport>(options, clock);
  if (const auto opened = transport->open(); !opened) return opened.error();
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace weft::probes
