#include "lib/base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "lib/base/fd.h"

namespace weft {
namespace {

// Whether reading may wait for somebody else. Files of /proc and /sys are regular ones here.
bool may_wait(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode));
}

// False when the time was over first. A writer that went counts as something to read: the end. One that never came does
// not, while read() would take it for the end (fifo(7)).
bool wait_for_data(int fd, Nanos until) {
  const SystemClock clock;
  for (;;) {
    const Nanos left = until - clock.monotonic_ns();
    if (left <= 0) return false;
    pollfd wanted{fd, POLLIN, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>((left + kMillisecond - 1) / kMillisecond));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // read() says what it is
  }
}

}  // namespace

Result<std::string> SystemFiles::read(const std::string& path, std::size_t limit) const {
  const Nanos until = SystemClock().monotonic_ns() + pipe_wait_ns_;
  // Opening a pipe would wait for a writer as well.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return errno_error(errno, "open " + path);
  const bool waits = may_wait(fd.get());
  std::string text;
  char block[4096];
  for (;;) {
    if (waits && !wait_for_data(fd.get(), until)) {
      return make_error(Error::Kind::Timeout, "read " + path +
                                                  ": a pipe or terminal that nobody wrote to its end within " +
                                                  std::to_string(pipe_wait_ns_ / kMillisecond) + " ms");
    }
    const ssize_t n = ::read(fd.get(), block, sizeof block);
    if (n < 0) {
      if (errno == EINTR || (waits && errno == EAGAIN)) continue;
      return errno_error(errno, "read " + path);
    }
    if (n == 0) return text;
    if (text.size() + static_cast<std::size_t>(n) > limit) {
      return make_error(Error::Kind::Exhausted, "read " + path + ": longer than " + std::to_string(limit) + " bytes");
    }
    text.append(block, static_cast<std::size_t>(n));
  }
}

Result<std::vector<std::string>> SystemFiles::list(const std::string& path) const {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (!dir) return errno_error(errno, "open folder " + path);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> SystemFiles::read_link(const std::string& path) const {
  char target[4096];
  const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
  if (n < 0) return errno_error(errno, "read link " + path);
  return std::string(target, static_cast<std::size_t>(n));
}

Result<std::string> FailingFiles::read(const std::string& path, std::size_t limit) const {
  if (const auto it = failures.find(path); it != failures.end()) return errno_error(it->second, "read " + path);
  return files_.read(path, limit);
}

Result<std::vector<std::string>> FailingFiles::list(const std::string& path) const {
  if (const auto it = failures.find(path); it != failures.end()) return errno_error(it->second, "open folder " + path);
  return files_.list(path);
}

Result<std::string> FailingFiles::read_link(const std::string& path) const {
  if (const auto it = failures.find(path); it != failures.end()) return errno_error(it->second, "read link " + path);
  return files_.read_link(path);
}

Result<std::string> read_trimmed(const FileReader& files, const std::string& path) {
  auto text = files.read(path);
  if (!text) return text.error();
  const std::size_t end = text->find_last_not_of(" \t\r\n");
  return text->substr(0, end == std::string::npos ? 0 : end + 1);
}

}  // namespace weft
