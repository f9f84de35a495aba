// Reading files as a seam: roots (/sys, /proc) are arguments, and tests inject EACCES, EINVAL, EIO.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace weft {

class FileReader {
 public:
  virtual ~FileReader() = default;
  // Whole file, at most limit bytes (Exhausted past it). Trailing newline kept.
  virtual Result<std::string> read(const std::string& path, std::size_t limit = 64 * 1024) const = 0;
  // Names in a folder without . and .., sorted.
  virtual Result<std::vector<std::string>> list(const std::string& path) const = 0;
  // Target of a symbolic link.
  virtual Result<std::string> read_link(const std::string& path) const = 0;
};

// The real file system. Thread safe. A pipe or a terminal is read to its end, but not for ever: Timeout when that takes
// longer than pipe_wait_ns, as where nobody writes to it.
class SystemFiles final : public FileReader {
 public:
  explicit SystemFiles(Nanos pipe_wait_ns = 5 * kSecond) : pipe_wait_ns_(pipe_wait_ns) {}
  Result<std::string> read(const std::string& path, std::size_t limit = 64 * 1024) const override;
  Result<std::vector<std::string>> list(const std::string& path) const override;
  Result<std::string> read_link(const std::string& path) const override;

 private:
  Nanos pipe_wait_ns_;
};

// For tests: passes to the real file system, but the named paths fail with the given errno.
class FailingFiles final : public FileReader {
 public:
  std::map<std::string, int> failures;  // path -> errno
  Result<std::string> read(const std::string& path, std::size_t limit = 64 * 1024) const override;
  Result<std::vector<std::string>> list(const std::string& path) const override;
  Result<std::string> read_link(const std::string& path) const override;

 private:
  SystemFiles files_;
};

// read, then strip trailing white space.
Result<std::string> read_trimmed(const FileReader& files, const std::string& path);

}  // namespace weft
