#include "lib/base/host_port.h"

#include "tests/unit/catch.h"

using namespace weft;

TEST_CASE("host and port: what is none is refused, and how to write it is said", "[base]") {
  const auto [text, want] = GENERATE(table<std::string, std::string>({
      {"", "'' is no HOST:PORT, like 127.0.0.1:7471 or [::1]:7471"},
      {"7471", "like 127.0.0.1:7471"},
      {":7471", "like 127.0.0.1:7471"},
      {"127.0.0.1:", "like 127.0.0.1:7471"},
      {"127.0.0.1:99999", "like 127.0.0.1:7471"},
      {"127.0.0.1:-1", "like 127.0.0.1:7471"},
      {"h:7x", "like 127.0.0.1:7471"},
      {"exa mple:7471", "'exa mple:7471' is no HOST:PORT, like 127.0.0.1:7471"},
      {"10.0.1:7471", "'10.0.1:7471' is no HOST:PORT, like 127.0.0.1:7471"},
      {"10.0.0.300:7471", "like 127.0.0.1:7471"},
      {"a..b:7471", "like 127.0.0.1:7471"},
      {".a:7471", "like 127.0.0.1:7471"},
      {"http://a:7471", "like 127.0.0.1:7471"},
      {std::string(254, 'a') + ":7471", "like 127.0.0.1:7471"},
      {"[]:7471", "like 127.0.0.1:7471"},
      {"[::1]", "or [::1]:7471"},
      {"[::1:7471", "or [::1]:7471"},
      {"[10.0.0.1]:7471", "like 127.0.0.1:7471"},
      {"[fd77::x]:7471", "or [::1]:7471"},
      {"fd77::1:80", "an IPv6 address stands in brackets: [fd77::1]:80"},
      {"fd77::1", "an IPv6 address stands in brackets: [fd77::1]:7471"},
      {"::1:7471", "an IPv6 address stands in brackets: [::1]:7471"},
  }));
  CAPTURE(text);
  const auto parsed = parse_host_port(text, 7471);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().kind == Error::Kind::Invalid);
  CHECK_THAT(parsed.error().context, ContainsSubstring(want));
}

TEST_CASE("host and port: names and addresses come through, IPv6 without its brackets", "[base]") {
  const auto [text, host, port] = GENERATE(table<std::string, std::string, std::uint16_t>({
      {"127.0.0.1:7471", "127.0.0.1", 7471},
      {"0.0.0.0:0", "0.0.0.0", 0},
      {"db-1.rack_2.example.:65535", "db-1.rack_2.example.", 65535},
      {"10.example:1", "10.example", 1},
      {"[::1]:7470", "::1", 7470},
      {"[fe80::1%eth0]:7470", "fe80::1%eth0", 7470},
  }));
  CAPTURE(text);
  const auto parsed = parse_host_port(text, 7471);
  REQUIRE(parsed);
  CHECK(*parsed == HostPort{host, port});
}

TEST_CASE("loopback is 127.0.0.0/8, ::1 and localhost, nothing else", "[base]") {
  CHECK(is_loopback("127.0.0.1"));
  CHECK(is_loopback("127.3.2.1"));
  CHECK(is_loopback("127.9.9.9"));
  CHECK(is_loopback("::1"));
  CHECK(is_loopback("localhost"));
  CHECK_FALSE(is_loopback("0.0.0.0"));
  CHECK_FALSE(is_loopback("::"));
  CHECK_FALSE(is_loopback("127.example.org"));
}
