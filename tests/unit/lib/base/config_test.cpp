#include "lib/base/config.h"

#include "tests/unit/catch.h"

using weft::Config;
using weft::Error;

namespace {

Config parsed(const char* toml) {
  auto config = Config::parse(toml, "weft.toml");
  REQUIRE(config);
  return *config;
}

// Of the given length, all comment.
struct LongFile final : weft::FileReader {
  std::size_t bytes = 0;
  weft::Result<std::string> read(const std::string& path, std::size_t limit) const override {
    if (bytes > limit) return weft::make_error(Error::Kind::Exhausted, "read " + path + ": too long");
    return std::string(bytes, '#');
  }
  weft::Result<std::vector<std::string>> list(const std::string&) const override { return std::vector<std::string>(); }
  weft::Result<std::string> read_link(const std::string&) const override { return std::string(); }
};

}  // namespace

TEST_CASE("config: more than 1 MiB is refused", "[base]") {
  LongFile files;
  files.bytes = 1024 * 1024;
  CHECK(Config::load(files, "weft.toml"));
  ++files.bytes;
  const auto config = Config::load(files, "weft.toml");
  REQUIRE_FALSE(config);
  CHECK(config.error().kind == Error::Kind::Exhausted);
}

TEST_CASE("config: broken TOML names file, line and column", "[base]") {
  const auto config = Config::parse("a = 1\nb = = 2\n", "weft.toml");
  REQUIRE_FALSE(config);
  CHECK(config.error().kind == Error::Kind::Invalid);
  CHECK_THAT(config.error().message(), ContainsSubstring("weft.toml:2:5"));
}

TEST_CASE("config: a key nobody asked for is an error with its place", "[base]") {
  Config config = parsed("[probe]\ntimeout = \"1s\"\nintervall = 3\n");
  config.root().table("probe").duration_ns("timeout", 0, 0, 10'000'000'000);
  const auto done = config.finish();
  REQUIRE_FALSE(done);
  CHECK_THAT(done.error().message(), ContainsSubstring("weft.toml:3:1: unknown key 'probe.intervall'"));
}

TEST_CASE("config: an unknown key inside an array of tables is found", "[base]") {
  Config config = parsed("[[link]]\na = \"x\"\nz = 1\n");
  for (auto& row : config.root().tables("link")) row.text("a");
  const auto done = config.finish();
  REQUIRE_FALSE(done);
  CHECK_THAT(done.error().message(), ContainsSubstring("unknown key 'link.z'"));
}

TEST_CASE("config: a wrong type, a value out of range and a bad duration are refused", "[base]") {
  const auto [toml, want] = GENERATE(table<const char*, const char*>({
      {"n = \"5\"", "'n' must be a whole number"},
      {"n = 500", "'n' must be from 1 to 100"},
      {"n = 5.5", "'n' must be a whole number"},
      {"d = \"5 parsecs\"", "is no duration"},
      {"d = \"5h\"", "must be from"},
      {"b = 1", "'b' must be true or false"},
      {"c = \"blue\"", "must be one of red, green"},
      {"l = [1]", "must be a list of strings"},
      {"f = inf", "must be a number"},
  }));
  Config config = parsed(toml);
  auto root = config.root();
  root.integer("n", 7, 1, 100);
  root.duration_ns("d", 0, 0, 60'000'000'000);
  root.boolean("b", false);
  root.choice("c", "red", {"red", "green"});
  root.texts("l");
  root.number("f", 0);
  const auto done = config.finish();
  REQUIRE_FALSE(done);
  CHECK_THAT(done.error().message(), ContainsSubstring(want));
  CHECK_THAT(done.error().message(), ContainsSubstring("weft.toml:1:"));
}

TEST_CASE("config: the first problem in file order is reported", "[base]") {
  Config config = parsed("wrong = 1\nn = \"x\"\n");
  config.root().integer("n", 0);
  CHECK_THAT(config.finish().error().message(), ContainsSubstring("weft.toml:1:1"));
}

TEST_CASE("config: a rule over several keys can point at one of them", "[base]") {
  Config config = parsed("[loss]\nraise = 0.1\nclear = 0.2\n");
  auto loss = config.root().table("loss");
  if (loss.number("clear", 0) >= loss.number("raise", 0)) loss.reject("clear", "must be below raise");
  CHECK_THAT(config.finish().error().message(), ContainsSubstring("weft.toml:3:9: 'loss.clear': must be below raise"));
}

TEST_CASE("config: the place of a key is known to rules that are checked later", "[base]") {
  Config config = parsed("[listen]\nhttp = \"::\"\n");
  CHECK(config.root().table("listen").place("http") == "weft.toml:2:8: ");
  CHECK(config.root().table("listen").place("grpc").empty());
  CHECK(config.root().table("absent").place("http").empty());
}

TEST_CASE("config: good values come through and absent ones fall back", "[base]") {
  Config config = parsed("n = 5\nd = \"250ms\"\nl = [\"a\", \"b\"]\nf = 2\n");
  auto root = config.root();
  CHECK(root.integer("n", 1) == 5);
  CHECK(root.duration_ns("d", 0, 0, 1'000'000'000) == 250'000'000);
  CHECK(root.texts("l") == std::vector<std::string>{"a", "b"});
  CHECK(root.number("f", 0) == 2.0);
  CHECK(root.text("absent", "fallback") == "fallback");
  CHECK(root.table("none").integer("x", 9) == 9);
  CHECK(config.finish());
}
