// The real ends the pipeline is wired to: RDMA and UDP engines, the tracer, device events, inventory, health.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/daemon/endpoint_keeper.h"
#include "agent/daemon/pipeline.h"
#include "agent/daemon/settings.h"

namespace weft::agent {

// clock outlives what is made.
EngineFactory real_engines(const Settings& settings, const Clock& clock);
Result<std::unique_ptr<TraceSource>> real_tracer(const Settings& settings, const Clock& clock);

}  // namespace weft::agent
