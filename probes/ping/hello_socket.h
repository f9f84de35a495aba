// The UDP socket hellos are asked and answered on. Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "lib/base/fd.h"
#include "lib/base/result.h"
#include "lib/model/device.h"

namespace weft::probes {

class HelloSocket {
 public:
  using OnDatagram =
      std::function<void(const model::Gid& from, std::uint16_t port, std::span<const std::uint8_t> bytes)>;
  // ICMP said that nothing listens where an earlier datagram went (ECONNREFUSED), or that there is no way to it.
  using OnRefused = std::function<void(const model::Gid& to, std::uint16_t port, int error)>;

  // Port 0: any free one. Taken: the error names the port and says how to see who has it.
  static Result<HelloSocket> open(const model::Gid& address, std::uint16_t port);

  int fd() const { return socket_.get(); }
  std::uint16_t port() const { return port_; }
  Result<void> send(const model::Gid& to, std::uint16_t port, std::span<const std::uint8_t> bytes) const;
  // What is there, at most 64 datagrams a call; never blocks.
  void receive(const OnDatagram& on_datagram, const OnRefused& on_refused) const;

 private:
  Fd socket_;
  std::uint16_t port_ = 0;
  bool v4_ = true;
};

}  // namespace weft::probes
