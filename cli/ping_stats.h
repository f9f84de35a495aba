// What a row of probes to one host says. Pure: outcomes and windows in, a summary out. Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "lib/model/path.h"
#include "probes/ping/engine.h"

namespace weft::cli {

// Nearest-rank quantiles over at most kMax samples; past that a uniform sample of all.
class Quantiles {
 public:
  static constexpr std::size_t kMax = 65536;
  void add(Nanos value);
  void add(const Quantiles& other);
  std::uint64_t count() const { return count_; }
  std::optional<Nanos> min() const { return count_ == 0 ? std::nullopt : std::optional(min_); }
  std::optional<Nanos> max() const { return count_ == 0 ? std::nullopt : std::optional(max_); }
  std::optional<Nanos> at(double quantile) const;

 private:
  std::vector<Nanos> samples_;
  std::uint64_t count_ = 0;
  Nanos min_ = 0, max_ = 0;
  std::uint64_t random_ = 88172645463325252ULL;
};

struct DirectionSummary {
  std::uint64_t lost = 0, ecn_capable = 0, ce = 0, bleached = 0;
  std::optional<unsigned> hops;  // routers passed
};

struct PortSummary {
  std::uint16_t forward_port = 0, return_port = 0;
  std::uint64_t sent = 0, lost = 0;
  DirectionSummary forward, back;
  Quantiles rtt;
};

struct PingSummary {
  // sent = acked + lost + late: an answer after the timeout is slow, not lost. Probes that accuse nobody (own host
  // late, not sent) are apart.
  std::uint64_t sent = 0, acked = 0, lost = 0, lost_unknown = 0;
  DirectionSummary forward, back;
  Quantiles rtt, prober_delay, responder_delay;
  std::uint64_t without_times = 0, late = 0, duplicate = 0, local_error = 0, overslept = 0, bad_timestamp = 0,
                stale = 0;
  std::string last_error;
  std::optional<model::TimestampRung> rung;  // the worst that was used; absent before the first window
  std::vector<PortSummary> ports;            // worst first
  bool lossy() const { return lost > 0; }
  // So many probes went uncounted, as this host was late itself, that nothing lost does not mean healthy.
  bool unsure() const { return lost == 0 && overslept * 10 > sent; }
  bool marked() const { return forward.ce + back.ce > 0; }
  bool ecn_unseen() const { return forward.ecn_capable + back.ecn_capable == 0; }
};

// Pairs of ports folded by the port of one way alone (the other becomes 0), worst of that way first.
std::vector<PortSummary> by_forward_port(const std::vector<PortSummary>& ports);
std::vector<PortSummary> by_return_port(const std::vector<PortSummary>& ports);

class PingStats {
 public:
  // limit: probes that count, 0 for all; sequences run from 1 and those past the limit are ignored.
  explicit PingStats(std::uint64_t limit = 0, std::uint8_t hop_limit = 64) : limit_(limit), hop_limit_(hop_limit) {}

  // False when this outcome is not counted (past the limit).
  bool add(const probes::ProbeOutcome& outcome);
  // Only for the direction of losses, which later acknowledgements tell.
  void add(const model::PathWindow& window);
  // Probes whose end is known, of those that count.
  std::uint64_t decided() const { return decided_; }
  bool done() const { return limit_ > 0 && decided_ >= limit_; }
  PingSummary summary() const;

 private:
  using Ports = std::pair<std::uint16_t, std::uint16_t>;
  std::uint64_t limit_;
  std::uint8_t hop_limit_;
  std::uint64_t decided_ = 0;
  PingSummary total_;
  std::map<Ports, PortSummary> by_ports_;
};

}  // namespace weft::cli
