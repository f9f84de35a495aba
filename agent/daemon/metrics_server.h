// GET /metrics and /healthz on a thread of its own; serves the last published page, so a scrape never waits for a
// device and never touches live state. Clients too slow to send or take are cut off and counted (lib/http).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/host_port.h"
#include "lib/base/result.h"
#include "lib/model/metric.h"

namespace weft::agent {

class MetricsServer {
 public:
  // Bound when it returns; an error names the address (taken, no permission). clock outlives the server.
  static Result<std::unique_ptr<MetricsServer>> start(const HostPort& listen, const Clock& clock);
  ~MetricsServer();

  std::uint16_t port() const;
  // Thread safe. Adds to the samples what this server counts itself. healthy false: /healthz answers 503 with the
  // reason; so it does when nothing was published for 10 s.
  void publish(std::vector<model::MetricSample> samples, bool healthy, std::string reason);

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::agent
