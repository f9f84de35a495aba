#include "lib/base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <string_view>

namespace weft {
namespace {

constexpr std::size_t kMaxName = 253;  // RFC 1035
constexpr std::size_t kMaxEcho = 64;

bool is_ipv4(const std::string& text) {
  in_addr address{};
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1;
}

bool is_ipv6(const std::string& text) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

bool is_name_or_ipv4(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kName = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.";
  if (is_ipv4(text)) return true;
  if (text.empty() || text.size() > kMaxName || text.find_first_not_of(kName) != std::string::npos) return false;
  if (text.front() == '.' || text.find("..") != std::string::npos) return false;
  // Resolvers take a name that ends in a number for an address: "10.0.1" for 10.0.0.1.
  const std::string whole = text.back() == '.' ? text.substr(0, text.size() - 1) : text;
  return whole.substr(whole.rfind('.') + 1).find_first_not_of(kDigits) != std::string::npos;
}

}  // namespace

Result<HostPort> parse_host_port(const std::string& text, std::uint16_t usual_port) {
  const auto bad = [&](const std::string& how) {
    return make_error(Error::Kind::Invalid, "'" + text.substr(0, kMaxEcho) + "' is no HOST:PORT" + how);
  };
  const std::string port = ":" + std::to_string(usual_port);
  const std::string like = ", like 127.0.0.1" + port + " or [::1]" + port;
  const auto bracketed = [&](const std::string& address, const std::string& at) {
    return bad("; an IPv6 address stands in brackets: [" + address + "]" + at);
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad(like);
  HostPort out;
  out.host = text.substr(0, colon);
  if (is_ipv6(out.host)) return bracketed(out.host, text.substr(colon));
  if (is_ipv6(text)) return bracketed(text, port);
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
    if (!is_ipv6(out.host)) return bad(like);
  } else if (!is_name_or_ipv4(out.host)) {
    return bad(like);
  }
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, out.port);
  if (error != std::errc{} || stop != end) return bad(like);
  return out;
}

bool is_loopback(const std::string& host) {
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1) return (ntohl(address.s_addr) >> 24) == 127;
  return host == "localhost" || host == "::1";
}

}  // namespace weft
