#include "probes/trace/raw_socket.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "lib/base/fd.h"

namespace weft::probes {
namespace {

constexpr int kIcmpFilter = 1;  // ICMP_FILTER of linux/icmp.h, which clashes with net/if.h

Error open_error(int error_number, const std::string& what) {
  Error error = errno_error(error_number, what);
  if (error.kind == Error::Kind::Permission) {
    error.error_number = 0;
    error.context =
        "tracing needs CAP_NET_RAW (" + what +
        "): run as root, `setcap cap_net_raw+ep` on the program, or AmbientCapabilities=CAP_NET_RAW in its unit";
  }
  return error;
}

sockaddr_in6 to_sockaddr6(const model::Gid& gid) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  std::memcpy(&address.sin6_addr, gid.raw.data(), 16);
  return address;
}

sockaddr_in to_sockaddr4(const model::Gid& gid) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  std::memcpy(&address.sin_addr, gid.raw.data() + 12, 4);
  return address;
}

class RawTraceSocket final : public TraceSocket {
 public:
  Result<void> open() {
    send4_.reset(::socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_RAW));
    if (!send4_) return open_error(errno, "raw IPv4 socket");
    receive4_.reset(::socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_ICMP));
    if (!receive4_) return open_error(errno, "ICMP socket");
    const std::uint32_t unwanted = ~(1U << ICMP_TIME_EXCEEDED | 1U << ICMP_DEST_UNREACH);
    (void)::setsockopt(receive4_.get(), SOL_RAW, kIcmpFilter, &unwanted, sizeof unwanted);

    send6_.reset(::socket(AF_INET6, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_RAW));
    receive6_.reset(::socket(AF_INET6, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_ICMPV6));
    if (!send6_ || !receive6_) {
      send6_.reset();
      receive6_.reset();
      return {};
    }
    icmp6_filter wanted6;
    ICMP6_FILTER_SETBLOCKALL(&wanted6);
    ICMP6_FILTER_SETPASS(ICMP6_TIME_EXCEEDED, &wanted6);
    ICMP6_FILTER_SETPASS(ICMP6_DST_UNREACH, &wanted6);
    (void)::setsockopt(receive6_.get(), IPPROTO_ICMPV6, ICMP6_FILTER, &wanted6, sizeof wanted6);
    return {};
  }

  Result<void> send(const TraceProbe& probe, const std::string& netdev) override {
    const std::vector<std::uint8_t> packet = build_trace_packet(probe);
    const bool v4 = probe.destination.is_ipv4_mapped();
    const Fd& socket = v4 ? send4_ : send6_;
    if (!socket) return make_error(Error::Kind::Unsupported, "this kernel has no IPv6");
    auto index = index_of(netdev);
    if (!index) return index.error();
    auto sent = send_by(*index, socket, probe, packet);
    if (!sent && sent.error().error_number == ENODEV && indexes_.erase(netdev) != 0) {
      // The interface was made anew.
      index = index_of(netdev);
      if (!index) return index.error();
      sent = send_by(*index, socket, probe, packet);
    }
    return sent;
  }

  Result<IcmpParse> receive() override {
    std::array<std::uint8_t, 2048> buffer;
    ssize_t size = ::recv(receive4_.get(), buffer.data(), buffer.size(), 0);
    if (size >= 0) return parse_icmp4({buffer.data(), static_cast<std::size_t>(size)});
    if (errno != EAGAIN && errno != EINTR) return errno_error(errno, "ICMP socket");
    if (!receive6_) return make_error(Error::Kind::NoData, "");
    sockaddr_in6 from{};
    socklen_t length = sizeof from;
    size = ::recvfrom(receive6_.get(), buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (size < 0) {
      if (errno == EAGAIN || errno == EINTR) return make_error(Error::Kind::NoData, "");
      return errno_error(errno, "ICMPv6 socket");
    }
    model::Gid responder;
    std::memcpy(responder.raw.data(), &from.sin6_addr, 16);
    return parse_icmp6({buffer.data(), static_cast<std::size_t>(size)}, responder);
  }

  std::vector<int> wait_fds() const override {
    std::vector<int> out{receive4_.get()};
    if (receive6_) out.push_back(receive6_.get());
    return out;
  }

 private:
  static constexpr std::size_t kMaxIndexes = 256;

  // Asking the kernel costs three calls, and this is done for each packet.
  Result<int> index_of(const std::string& netdev) {
    if (netdev.empty()) return 0;
    if (const auto known = indexes_.find(netdev); known != indexes_.end()) return known->second;
    const int index = static_cast<int>(::if_nametoindex(netdev.c_str()));
    if (index == 0) return errno_error(errno, "trace by " + netdev);
    if (indexes_.size() >= kMaxIndexes) indexes_.clear();
    return indexes_[netdev] = index;
  }

  static Result<void> send_by(int index, const Fd& socket, const TraceProbe& probe,
                              const std::vector<std::uint8_t>& packet) {
    const bool v4 = probe.destination.is_ipv4_mapped();
    iovec data{const_cast<std::uint8_t*>(packet.data()), packet.size()};
    sockaddr_in to4 = to_sockaddr4(probe.destination);
    sockaddr_in6 to6 = to_sockaddr6(probe.destination);
    // The route lookup of a raw socket does not look into our header: policy routes by source need the packet info.
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(in6_pktinfo))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    if (v4) {
      message.msg_name = &to4;
      message.msg_namelen = sizeof to4;
      in_pktinfo info{};
      info.ipi_ifindex = index;
      info.ipi_spec_dst = to_sockaddr4(probe.source).sin_addr;
      message.msg_controllen = CMSG_SPACE(sizeof info);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      *header = cmsghdr{CMSG_LEN(sizeof info), IPPROTO_IP, IP_PKTINFO};
      std::memcpy(CMSG_DATA(header), &info, sizeof info);
    } else {
      if (probe.destination.is_link_local()) to6.sin6_scope_id = static_cast<std::uint32_t>(index);
      message.msg_name = &to6;
      message.msg_namelen = sizeof to6;
      in6_pktinfo info{};
      info.ipi6_ifindex = static_cast<unsigned>(index);
      info.ipi6_addr = to_sockaddr6(probe.source).sin6_addr;
      message.msg_controllen = CMSG_SPACE(sizeof info);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      *header = cmsghdr{CMSG_LEN(sizeof info), IPPROTO_IPV6, IPV6_PKTINFO};
      std::memcpy(CMSG_DATA(header), &info, sizeof info);
    }
    if (::sendmsg(socket.get(), &message, 0) < 0) {
      const int error_number = errno;
      return errno_error(error_number, "trace packet from " + probe.source.to_string() + " to " +
                                           probe.destination.to_string() + " (TTL " + std::to_string(probe.ttl) + ")");
    }
    return {};
  }

  std::map<std::string, int> indexes_;  // by interface name
  Fd send4_, receive4_, send6_, receive6_;
};

}  // namespace

Result<std::unique_ptr<TraceSocket>> open_trace_socket() {
  auto socket = std::make_unique<RawTraceSocket>();
  if (auto opened = socket->open(); !opened) return opened.error();
  return std::unique_ptr<TraceSocket>(std::move(socket));
}

Result<std::string> source_address_for(const std::string& destination) {
  auto gid = model::Gid::parse(destination);
  if (!gid) return gid.error();
  const bool v4 = gid->is_ipv4_mapped();
  Fd socket(::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno_error(errno, "socket");
  sockaddr_in to4 = to_sockaddr4(*gid);
  sockaddr_in6 to6 = to_sockaddr6(*gid);
  to4.sin_port = to6.sin6_port = htons(4791);  // connect sends nothing
  const int connected = v4 ? ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to4), sizeof to4)
                           : ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to6), sizeof to6);
  if (connected != 0) {
    Error error = errno_error(errno, "no route to " + destination);
    if (error.kind == Error::Kind::Internal) error.kind = Error::Kind::NotFound;
    return error;
  }
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    return errno_error(errno, "getsockname");
  model::Gid source;
  if (v4) {
    source.raw[10] = source.raw[11] = 0xff;
    std::memcpy(source.raw.data() + 12, &reinterpret_cast<sockaddr_in*>(&own)->sin_addr, 4);
  } else {
    std::memcpy(source.raw.data(), &reinterpret_cast<sockaddr_in6*>(&own)->sin6_addr, 16);
  }
  return source.to_string();
}

}  // namespace weft::probes
