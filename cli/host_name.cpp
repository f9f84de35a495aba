#include "cli/host_name.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "lib/model/device.h"

namespace weft::cli {
namespace {

// Shared with a thread that may outlive the call: the resolver cannot be interrupted.
struct Lookup {
  std::mutex mutex;
  std::condition_variable ready;
  std::optional<Result<std::string>> result;
};

Result<std::string> look_up(const std::string& name) {
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

}  // namespace

Result<HostAddress> resolve_host(const std::string& text, Nanos deadline_ns) {
  if (text.empty()) return make_error(Error::Kind::Invalid, "a host is empty text");
  if (auto gid = model::Gid::parse(text)) return HostAddress{text, gid->to_string()};
  auto lookup = std::make_shared<Lookup>();
  std::thread([lookup, text] {
    auto result = look_up(text);
    std::lock_guard lock(lookup->mutex);
    lookup->result = std::move(result);
    lookup->ready.notify_one();
  }).detach();
  std::unique_lock lock(lookup->mutex);
  lookup->ready.wait_for(lock, std::chrono::nanoseconds(deadline_ns), [&] { return lookup->result.has_value(); });
  if (!lookup->result) return make_error(Error::Kind::Timeout, "host " + text + ": the name service does not answer");
  if (!*lookup->result) return lookup->result->error();
  return HostAddress{text, **lookup->result};
}

std::string own_host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  const std::string full(name.data());
  return full.substr(0, full.find('.'));
}

}  // namespace weft::cli
