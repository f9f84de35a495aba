// What an agent is asked to probe. Passive data; made by lib/localise, carried by the stream, followed by weftd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::model {

struct PlanPath {
  std::uint16_t forward_port = 0;  // 0: the agent chooses, taking its ports in turn
  std::uint16_t return_port = 0;   // 0: likewise, among the responder's
  double probes_per_s = 1;
  bool operator==(const PlanPath&) const = default;
};

struct PlanTarget {
  std::string from_device;  // "rxe0"
  std::string to;           // "h3/rxe0"
  std::string to_address;   // GID or IP text; the hello goes there when it is IP
  std::uint16_t hello_port = 0;
  std::vector<PlanPath> paths;
  bool operator==(const PlanTarget&) const = default;
};

// A path under suspicion whose routers shall be asked: probes with each hop limit in turn, several a second, reported
// as a PathTrace each second as long as it stands in the plan.
struct PlanTrace {
  std::string from_device;  // "rxe0"
  std::string to;           // "h3/rxe0"
  std::string to_address;
  std::uint16_t source_port = 0;
  double probes_per_hop_per_s = 5;
  std::uint16_t destination_port = 0;  // see PathTrace
  bool operator==(const PlanTrace&) const = default;
};

struct ProbePlan {
  std::uint64_t revision = 0;      // rises with each change
  std::uint32_t ports_wanted = 0;  // source ports (queue pairs on rxe) each endpoint should offer; 0: as it likes
  std::vector<PlanTarget> targets;
  std::vector<PlanTrace> traces;  // few, and only while something is suspected
  bool operator==(const ProbePlan&) const = default;
};

}  // namespace weft::model
