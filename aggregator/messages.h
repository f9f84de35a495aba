// What ingest, store and API say to judging; all of it passes through one BoundedQueue. Passive data. Times are those
// of receipt: monotonic for judging, wall for people and the store.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "aggregator/ingest/stream_link.h"
#include "aggregator/store/rows.h"
#include "lib/base/bounded_queue.h"
#include "lib/base/result.h"
#include "lib/localise/localiser.h"
#include "lib/localise/topology.h"
#include "lib/wire/messages.h"

namespace weft::aggregator {

using Link = std::shared_ptr<StreamLink>;

struct Received {
  Nanos monotonic_ns = 0;
  Nanos wall_ns = 0;
};

struct Opened {
  Link link;
  wire::Hello hello;
  Received at;
};

struct ValidRecord {
  wire::Record record;
  std::string bytes;  // as it came, for the store
};

struct Arrived {
  Link link;
  std::uint64_t sequence = 0;
  std::vector<ValidRecord> records;
  std::uint32_t malformed = 0;  // dropped alone
  std::uint32_t foreign = 0;    // about another host than the agent's; dropped alone
  std::uint32_t unknown = 0;    // kinds of a newer agent
  Received at;
};

struct Left {
  Link link;
  wire::Goodbye goodbye;
  Received at;
};

// The stream ended; broke_rules when it was the agent's fault.
struct Closed {
  Link link;
  bool broke_rules = false;
  Received at;
};

struct Stored {
  std::vector<AgentRow> rows;
};

struct AcknowledgeFinding {
  std::string id;
  std::shared_ptr<std::promise<Result<model::Finding>>> answer;
};

struct ClearFindings {
  std::shared_ptr<std::promise<std::size_t>> answer;  // how many were active
};

struct Reload {
  localise::LocaliserConfig config;
  localise::Topology topology;
};

using Message = std::variant<Opened, Arrived, Left, Closed, Stored, AcknowledgeFinding, ClearFindings, Reload>;
using MessageQueue = BoundedQueue<Message>;

}  // namespace weft::aggregator
