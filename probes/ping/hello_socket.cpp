#include "probes/ping/hello_socket.h"

#include <linux/errqueue.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "probes/packet/packet.h"
#include "probes/ping/address.h"

namespace weft::probes {
namespace {

constexpr unsigned kMostPerCall = 64;

// The errno of an ICMP error, and where its datagram had gone (man 7 ip, IP_RECVERR).
int read_error(int fd, sockaddr_storage& destination) {
  alignas(cmsghdr) std::array<char, 512> control;
  msghdr message{};
  message.msg_name = &destination;
  message.msg_namelen = sizeof destination;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (::recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if ((header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_RECVERR) ||
        (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_RECVERR)) {
      sock_extended_err error{};
      std::memcpy(&error, CMSG_DATA(header), sizeof error);
      return static_cast<int>(error.ee_errno);
    }
  }
  return EIO;
}

}  // namespace

Result<HelloSocket> HelloSocket::open(const model::Gid& address, std::uint16_t port) {
  HelloSocket hello;
  hello.v4_ = address.is_ipv4_mapped();
  hello.socket_.reset(::socket(hello.v4_ ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!hello.socket_) return errno_error(errno, "opening the hello socket");
  const int on = 1;
  const int level = hello.v4_ ? IPPROTO_IP : IPPROTO_IPV6;
  if (::setsockopt(hello.fd(), level, hello.v4_ ? IP_RECVERR : IPV6_RECVERR, &on, sizeof on) != 0) {
    return errno_error(errno, "setting IP_RECVERR on the hello socket");
  }
  if (!hello.v4_ && ::setsockopt(hello.fd(), level, IPV6_V6ONLY, &on, sizeof on) != 0) {
    return errno_error(errno, "setting IPV6_V6ONLY on the hello socket");
  }
  // No SO_REUSEADDR: UDP has no TIME_WAIT to restart over, and with it two daemons would share the port unnoticed.
  const SocketAddress local = to_socket_address(address, port);
  if (::bind(hello.fd(), local.get(), local.length) != 0) {
    const std::string where = "binding hello port " + to_text(address, port) + " (UDP)";
    if (errno == EADDRINUSE) {
      return Error{Error::Kind::Exhausted, EADDRINUSE,
                   where + ": is weftd or weft responder running already? ss -ulpn sport = :" + std::to_string(port) +
                       " shows who has it"};
    }
    if (errno == EINVAL && address.is_link_local()) {
      return make_error(Error::Kind::Invalid, where + ": a link-local address cannot carry hellos; give an IP address");
    }
    if (errno == EADDRNOTAVAIL) {
      return Error{Error::Kind::NotFound, EADDRNOTAVAIL,
                   where + ": is " + address.to_string() + " an address of this host?"};
    }
    return errno_error(errno, where);
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(hello.fd(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return errno_error(errno, "getsockname");
  }
  hello.port_ = port_of(bound);
  return hello;
}

Result<void> HelloSocket::send(const model::Gid& to, std::uint16_t port, std::span<const std::uint8_t> bytes) const {
  if (to.is_ipv4_mapped() != v4_) {
    return make_error(Error::Kind::Invalid, "no way between an IPv4 and an IPv6 address");
  }
  const SocketAddress address = to_socket_address(to, port);
  // The first error may be that of an earlier datagram (IP_RECVERR); a second is our own.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (::sendto(fd(), bytes.data(), bytes.size(), 0, address.get(), address.length) >= 0) return {};
  }
  return errno_error(errno, "sending a hello to " + to_text(to, port));
}

void HelloSocket::receive(const OnDatagram& on_datagram, const OnRefused& on_refused) const {
  // One byte more than the largest, so that a longer datagram is seen to be longer.
  std::array<std::uint8_t, kHelloBytes + 1> buffer;
  for (unsigned i = 0; i < kMostPerCall; ++i) {
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    const ssize_t size =
        ::recvfrom(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &length);
    if (size >= 0) {
      on_datagram(gid_of(from), port_of(from), std::span(buffer).first(static_cast<std::size_t>(size)));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
  }
  sockaddr_storage destination{};
  for (unsigned i = 0; i < kMostPerCall; ++i) {
    const int error = read_error(fd(), destination);
    if (error == 0) return;
    if (error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH)
      on_refused(gid_of(destination), port_of(destination), error);
  }
}

}  // namespace weft::probes
