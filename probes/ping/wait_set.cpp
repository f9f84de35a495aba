#include "probes/ping/wait_set.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>

namespace weft::probes {

Result<void> WaitSet::open() {
  wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!wake_ || !epoll_) return errno_error(errno, "opening the probe engine's descriptors");
  watch(wake_.get());
  return {};
}

void WaitSet::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  // Already there is fine: descriptors of lanes stay when others are added.
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void WaitSet::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

std::span<const int> WaitSet::wait(Nanos at_most) {
  const Nanos left = std::max<Nanos>(at_most, 0);
  std::array<epoll_event, kMost> events;
  int count = -1;
  if (fine_) {
    const timespec timeout{left / kSecond, left % kSecond};
    count = epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()), &timeout, nullptr);
    // Before Linux 5.11, and where a sandbox does not know the call.
    if (count < 0 && (errno == ENOSYS || errno == EPERM)) fine_ = false;
  }
  if (!fine_) {
    const auto rounded_up = static_cast<int>((left + kMillisecond - 1) / kMillisecond);
    count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), rounded_up);
  }
  std::size_t ready = 0;
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == wake_.get()) {
      std::uint64_t ignored = 0;
      (void)!::read(fd, &ignored, sizeof ignored);
    } else {
      ready_[ready++] = fd;
    }
  }
  return std::span(ready_).first(ready);
}

}  // namespace weft::probes
