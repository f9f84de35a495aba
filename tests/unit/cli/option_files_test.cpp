#include "cli/option_files.h"

#include <cerrno>
#include <map>

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::cli;

namespace {

struct Files final : FileReader {
  std::map<std::string, std::string> texts;
  int otherwise = ENOENT;
  Result<std::string> read(const std::string& path, std::size_t) const override {
    const auto found = texts.find(path);
    if (found == texts.end()) return errno_error(otherwise, "read " + path);
    return found->second;
  }
  Result<std::vector<std::string>> list(const std::string&) const override { return std::vector<std::string>(); }
  Result<std::string> read_link(const std::string&) const override { return std::string(); }
};

DirectOptions naming(const std::string& topology, const std::string& key) {
  DirectOptions out;
  out.topology_file = topology;
  out.key_file = key;
  return out;
}

}  // namespace

TEST_CASE("option files: one that is missing or wrong is a usage error that names the option and the file", "[cli]") {
  Files files;
  files.texts = {{"bad.toml", "[[switch]]\nname = \"s1\"\nnome = 1\n"}, {"short.key", "abc"}};
  const auto [topology, key, want] = GENERATE(table<const char*, const char*, const char*>({
      {"t.toml", "", "--topology: read t.toml: No such file"},
      {"bad.toml", "", "--topology: bad.toml:3:1: unknown key"},
      {"", "fabric.key", "--key-file: read fabric.key: No such file"},
      {"", "short.key", "--key-file: short.key: a fabric key is 64"},
  }));
  const auto read = read_option_files(naming(topology, key), files);
  REQUIRE_FALSE(read);
  CHECK(read.error().kind == Error::Kind::Invalid);
  CHECK_THAT(read.error().message(), ContainsSubstring(want));
}

TEST_CASE("option files: one that may not be read is no usage error", "[cli]") {
  Files files;
  files.otherwise = EACCES;
  for (const DirectOptions& options : {naming("t.toml", ""), naming("", "fabric.key")}) {
    const auto read = read_option_files(options, files);
    REQUIRE_FALSE(read);
    CHECK(read.error().kind == Error::Kind::Permission);
  }
}

TEST_CASE("option files: what is named is read, and nothing without a name", "[cli]") {
  Files files;
  files.texts = {{"t.toml",
                  "[[switch]]\nname = \"s1\"\n[[switch]]\nname = \"l1\"\n[[link]]\na = \"s1\"\nb = \"l1\"\n"
                  "a_addresses = [\"10.0.0.1\"]\n"},
                 {"fabric.key", std::string(64, 'a')}};
  const auto read = read_option_files(naming("t.toml", "fabric.key"), files);
  REQUIRE(read);
  CHECK(read->names.name("10.0.0.1") == "s1");
  CHECK_FALSE(read->key.is_default());
  const auto none = read_option_files({}, files);
  REQUIRE(none);
  CHECK(none->key.is_default());
  CHECK_FALSE(none->names.has_topology());
}
