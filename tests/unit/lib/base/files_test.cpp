#include "lib/base/files.h"

#include <cerrno>

#include "tests/unit/catch.h"

using weft::Error;
using weft::FailingFiles;
using weft::SystemFiles;

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
