// A transport that keeps what is sent and lets a test decide what comes of it.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "probes/ping/transport.h"

namespace weft::test {

struct Sent {
  probes::Role role = probes::Role::Prober;
  std::uint32_t lane_number = 0;
  std::uint16_t source_port = 0;
  probes::Destination to;
  std::uint8_t traffic_class = 0;
  std::vector<std::uint8_t> payload;
  std::uint64_t cookie = 0;
};

class FakeTransport final : public probes::Transport {
 public:
  std::string transport_name = "rdma";
  model::TimestampRung stamp_rung = model::TimestampRung::NicTicks;
  model::Gid address;
  std::vector<probes::LaneInfo> lane_infos;
  std::vector<std::uint16_t> prober_ports, responder_ports;
  probes::Stamp stamp_mask = ~probes::Stamp{0};
  std::optional<Error> refuse;  // what send returns, when set
  std::vector<Sent> sent;
  std::function<void(const Sent&)> on_send;  // from inside send

  std::string name() const override { return transport_name; }
  model::TimestampRung rung() const override { return stamp_rung; }
  model::Gid local_address() const override { return address; }
  std::vector<probes::LaneInfo> lanes() const override { return lane_infos; }
  std::vector<std::uint16_t> source_ports(probes::Role role) const override {
    return role == probes::Role::Prober ? prober_ports : responder_ports;
  }
  Result<void> want_ports(probes::Role, unsigned) override { return {}; }
  std::size_t max_payload_bytes() const override { return 4096; }
  Result<void> send(probes::Role role, std::uint32_t lane_number, std::uint16_t source_port,
                    const probes::Destination& to, std::uint8_t traffic_class, std::span<const std::uint8_t> payload,
                    std::uint64_t cookie) override {
    if (refuse) return *refuse;
    sent.push_back({role, lane_number, source_port, to, traffic_class, {payload.begin(), payload.end()}, cookie});
    if (on_send) on_send(Sent(sent.back()));
    return {};
  }
  Result<void> poll(probes::TransportEvents&) override { return {}; }
  std::vector<int> wait_fds() const override { return {}; }
  Result<bool> arm() override { return true; }
  Nanos elapsed_ns(probes::Stamp from, probes::Stamp to) const override {
    const probes::Stamp difference = (to - from) & stamp_mask;
    // The half of the range above the middle is the past.
    return difference > stamp_mask / 2 ? -static_cast<Nanos>((from - to) & stamp_mask) : static_cast<Nanos>(difference);
  }
  std::optional<std::uint32_t> take_responder_low_water() override { return std::nullopt; }

  void add_lane(probes::Role role, std::uint32_t number, std::uint16_t port) {
    lane_infos.push_back({role, number, port});
    (role == probes::Role::Prober ? prober_ports : responder_ports).push_back(port);
  }
};

}  // namespace weft::test
