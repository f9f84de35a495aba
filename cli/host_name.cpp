#include "cli/host_name.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include "cli/bounded_call.h"
#include "lib/model/device.h"

namespace weft::cli {

Result<std::string> system_look_up(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(name.c_str(), nullptr, &wanted, &found);
  if (failed != 0) {
    return make_error(Error::Kind::NotFound, "host " + name + ": " + ::gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  for (int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      if (a->ai_family != family) continue;
      std::array<char, INET6_ADDRSTRLEN> text{};
      const void* at = family == AF_INET
                           ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(a->ai_addr)->sin_addr)
                           : &reinterpret_cast<sockaddr_in6*>(a->ai_addr)->sin6_addr;
      if (::inet_ntop(family, at, text.data(), text.size()) != nullptr) return std::string(text.data());
    }
  }
  return make_error(Error::Kind::NotFound, "host " + name + ": no IP address");
}

std::vector<Result<HostAddress>> resolve_hosts(const std::vector<std::string>& texts, Nanos deadline_ns,
                                               const LookUp& look_up) {
  std::vector<std::optional<BoundedCall<Result<std::string>>>> calls(texts.size());
  std::vector<Result<HostAddress>> out;
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(deadline_ns);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string& text = texts[i];
    if (text.empty() || model::Gid::parse(text)) continue;
    calls[i].emplace([look_up, text] { return look_up(text); });
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string& text = texts[i];
    if (!calls[i]) {
      if (text.empty()) {
        out.push_back(make_error(Error::Kind::Invalid, "a host is empty text"));
      } else if (const auto address = model::Gid::parse_unicast(text); !address) {
        out.push_back(address.error());
      } else {
        out.push_back(HostAddress{text, address->to_string()});
      }
      continue;
    }
    const auto left = std::chrono::nanoseconds(until - std::chrono::steady_clock::now()).count();
    const auto found = calls[i]->wait(left);
    if (!found) {
      out.push_back(make_error(Error::Kind::Timeout, "host " + text + ": the name service does not answer"));
    } else if (!*found) {
      out.push_back(found->error());
    } else if (const auto address = model::Gid::parse_unicast(**found); !address) {
      out.push_back(make_error(Error::Kind::NotFound, "host " + text + ": " + address.error().context));
    } else {
      out.push_back(HostAddress{text, **found});
    }
  }
  return out;
}

Result<HostAddress> resolve_host(const std::string& text, Nanos deadline_ns, const LookUp& look_up) {
  return std::move(resolve_hosts({text}, deadline_ns, look_up).front());
}

std::string own_host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  const std::string full(name.data());
  return full.substr(0, full.find('.'));
}

}  // namespace weft::cli
