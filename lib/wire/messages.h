// What agent and aggregator say to each other, in model types. Passive data. Bounds here hold on both ends: what
// exceeds them is refused by the decoder, so a hostile or broken peer cannot make the other side grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/base/clock.h"
#include "lib/model/device.h"
#include "lib/model/finding.h"
#include "lib/model/path.h"
#include "lib/model/plan.h"

namespace weft::wire {

inline constexpr std::uint32_t kSchema = 1;
inline constexpr std::size_t kMaxMessageBytes = 4 * 1024 * 1024;  // one stream message, both ways
inline constexpr std::size_t kMaxBatchBytes = 1024 * 1024;        // what BatchBuilder fills
inline constexpr std::size_t kMaxRecordBytes = 512 * 1024;
inline constexpr std::size_t kMaxBatchRecords = 8192;

// Keepalive of both ends. A server that allows fewer pings than its clients send answers with GOAWAY too_many_pings,
// so one table serves both (grpc issue 33661).
inline constexpr int kKeepalivePingMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;
inline constexpr int kKeepaliveMinimumMs = 5'000;  // the server accepts pings this often

// This many older samples were dropped by the agent before this record.
struct Gap {
  std::uint64_t dropped = 0;
  bool operator==(const Gap&) const = default;
};

using Record =
    std::variant<model::Inventory, model::PathWindow, model::PathTrace, model::HostHealth, model::Finding, Gap>;

struct Hello {
  std::uint32_t schema = kSchema;
  std::string fabric;
  std::string agent;  // host name in subjects
  std::string boot_id;
  std::uint64_t epoch = 0;  // new at each start of weftd, larger than the one before
  std::uint64_t first_unacknowledged = 0;
  Nanos wall_ns = 0;  // for people only
  std::string version;
  bool operator==(const Hello&) const = default;
};

struct Batch {
  std::uint64_t sequence = 0;        // 1, 2, ... within the epoch
  std::vector<std::string> records;  // each by encode_record
  Nanos wall_ns = 0;
  bool operator==(const Batch&) const = default;
};

struct Goodbye {
  Nanos restart_allowance_ns = 0;  // how long silence is expected; 0: gone for good
  std::string reason;
  bool operator==(const Goodbye&) const = default;
};

struct Welcome {
  std::uint64_t last_stored = 0;
  Nanos reconnect_after_ns = 0;
  std::string refused;  // not empty: why; the stream then ends
  bool operator==(const Welcome&) const = default;
};

struct Ack {
  std::uint64_t sequence = 0;
  std::uint32_t rejected_records = 0;
  bool operator==(const Ack&) const = default;
};

using AgentWord = std::variant<Hello, Batch, Goodbye>;
using AggregatorWord = std::variant<Welcome, Ack, model::ProbePlan>;

}  // namespace weft::wire
