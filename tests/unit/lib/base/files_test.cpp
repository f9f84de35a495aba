#include "lib/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/unit/catch.h"

using weft::Error;
using weft::FailingFiles;
using weft::SystemFiles;

namespace {

// A named pipe of its own folder.
struct Pipe {
  char folder[32] = "/tmp/weft-pipe-XXXXXX";
  std::string path;
  Pipe() {
    REQUIRE(::mkdtemp(folder) != nullptr);
    path = std::string(folder) + "/pipe";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  }
  ~Pipe() {
    ::unlink(path.c_str());
    ::rmdir(folder);
  }
};

}  // namespace

TEST_CASE("files: a missing file is NotFound and names the path", "[base]") {
  const auto text = SystemFiles().read("/nonexistent/weft");
  REQUIRE_FALSE(text);
  CHECK(text.error().kind == Error::Kind::NotFound);
  CHECK_THAT(text.error().message(), ContainsSubstring("/nonexistent/weft"));
}

TEST_CASE("files: an endless file stops at the limit", "[base]") {
  const auto text = SystemFiles().read("/dev/zero", 10'000);
  REQUIRE_FALSE(text);
  CHECK(text.error().kind == Error::Kind::Exhausted);
}

TEST_CASE("files: an injected errno reaches the caller as its kind", "[base]") {
  FailingFiles files;
  files.failures["/proc/self/status"] = EACCES;
  CHECK(files.read("/proc/self/status").error().kind == Error::Kind::Permission);
  CHECK(files.read("/proc/self/stat"));
}

TEST_CASE("files: trimmed reading drops the trailing newline, folders list sorted", "[base]") {
  const auto type = weft::read_trimmed(SystemFiles(), "/proc/sys/kernel/ostype");
  REQUIRE(type);
  CHECK(*type == "Linux");
  const auto names = SystemFiles().list("/proc/self");
  REQUIRE(names);
  CHECK(std::is_sorted(names->begin(), names->end()));
}

TEST_CASE("files: a pipe that nobody writes to ends with Timeout, also when its writer never closes it", "[base]") {
  const Pipe pipe;
  const SystemFiles files(50 * weft::kMillisecond);
  int writer = -1;
  SECTION("no writer") {}
  SECTION("a writer that stays") {
    writer = ::open(pipe.path.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(writer >= 0);
    REQUIRE(::write(writer, "half", 4) == 4);
  }
  const auto text = files.read(pipe.path);
  if (writer >= 0) ::close(writer);
  REQUIRE_FALSE(text);
  CHECK(text.error().kind == Error::Kind::Timeout);
  CHECK_THAT(text.error().message(), ContainsSubstring(pipe.path) && ContainsSubstring("nobody wrote to its end"));
}

TEST_CASE("files: a pipe is read to its end, whoever comes first", "[base]") {
  const std::string text(100'000, 'x');  // more than a pipe holds
  const SystemFiles files(60 * weft::kSecond);
  SECTION("a named one, whose writer comes later") {
    const Pipe pipe;
    std::thread writer([&] {
      const int fd = ::open(pipe.path.c_str(), O_WRONLY | O_CLOEXEC);
      for (std::size_t at = 0; at < text.size();) at += static_cast<std::size_t>(::write(fd, &text[at], 10'000));
      ::close(fd);
    });
    const auto read = files.read(pipe.path, 1'000'000);
    writer.join();
    REQUIRE(read);
    CHECK(*read == text);
  }
  SECTION("that of a process substitution, whose writer is gone") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    SECTION("with words") {
      REQUIRE(::write(ends[1], "a = 1", 5) == 5);
      ::close(ends[1]);
      CHECK(files.read("/dev/fd/" + std::to_string(ends[0])).value() == "a = 1");
    }
    SECTION("without") {
      ::close(ends[1]);
      CHECK(files.read("/dev/fd/" + std::to_string(ends[0])).value().empty());
    }
    ::close(ends[0]);
  }
  SECTION("nothing at all") { CHECK(files.read("/dev/null").value().empty()); }
}
