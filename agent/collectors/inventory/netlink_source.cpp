#include "agent/collectors/inventory/netlink_source.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "lib/base/fd.h"

namespace weft::inventory {
namespace {

// A link message of a NIC with many virtual functions is the largest; NLMSG_GOODSIZE of the kernel is less.
constexpr std::size_t kMaxBytes = 32 * 1024;

class KernelSource final : public NetlinkSource {
 public:
  KernelSource(Fd fd, std::string what) : fd_(std::move(fd)), what_(std::move(what)), buffer_(kMaxBytes, '\0') {}
  int fd() const override { return fd_.get(); }

  Result<std::string> receive() override {
    for (;;) {
      sockaddr_nl sender{};
      socklen_t size = sizeof sender;
      const ssize_t got =
          ::recvfrom(fd_.get(), buffer_.data(), buffer_.size(), MSG_TRUNC, reinterpret_cast<sockaddr*>(&sender), &size);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return make_error(Error::Kind::NoData, "no " + what_);
      if (got < 0 && errno == ENOBUFS) return make_error(Error::Kind::Exhausted, what_ + " were dropped");
      if (got < 0) return errno_error(errno, "receive " + what_);
      if (sender.nl_pid != 0) return std::string();
      return buffer_.substr(0, std::min(static_cast<std::size_t>(got), buffer_.size()));
    }
  }

 private:
  Fd fd_;
  std::string what_;
  std::string buffer_;
};

Result<std::unique_ptr<NetlinkSource>> open_group(int protocol, unsigned groups, const std::string& what) {
  Fd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
  if (!fd) return errno_error(errno, "socket for " + what);
  // A burst of some thousand (a NIC with many functions going) fits; SO_RCVBUFFORCE needs privilege.
  const int bytes = 1 << 20;
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = groups;
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return errno_error(errno, "bind the socket for " + what);
  return std::unique_ptr<NetlinkSource>(std::make_unique<KernelSource>(std::move(fd), what));
}

}  // namespace

Result<std::unique_ptr<NetlinkSource>> open_kernel_uevents() {
  return open_group(NETLINK_KOBJECT_UEVENT, 1, "uevents");  // the kernel's group; udev's is 2
}

Result<std::unique_ptr<NetlinkSource>> open_link_messages() {
  return open_group(NETLINK_ROUTE, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR, "link messages");
}

}  // namespace weft::inventory
