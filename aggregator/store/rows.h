// What the store keeps. Passive data. Times are the aggregator's wall clock at receipt, ns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/model/finding.h"

namespace weft::aggregator {

// Progress of one agent: everything up to last_sequence of this epoch is stored.
struct AgentRow {
  std::string agent;
  std::uint64_t epoch = 0;
  std::uint64_t last_sequence = 0;
  Nanos last_seen_wall_ns = 0;
  std::uint64_t batches = 0, records = 0;  // when the writer reports: how many became durable with it
};

// The newest record of its key (an inventory, a trace of one port, a finding of the agent); no bytes: forget the key.
struct LatestRow {
  std::string agent;
  std::string key;
  std::optional<std::string> record;
  Nanos received_wall_ns = 0;
};

// One batch, validated: records that only matter for a while go to the journal, the others to latest.
struct BatchRow {
  std::string agent;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;  // 0: no batch, only rows of latest
  Nanos received_wall_ns = 0;
  std::vector<std::string> journal;  // encoded records
  std::vector<LatestRow> latest;
  std::uint64_t records = 0;  // that came in it
  std::size_t bytes() const {
    std::size_t sum = 128;
    for (const std::string& record : journal) sum += record.size() + 32;
    for (const LatestRow& row : latest) sum += row.key.size() + (row.record ? row.record->size() : 0) + 96;
    return sum;
  }
};

struct JournalRow {
  std::string agent;
  std::uint64_t epoch = 0;
  Nanos received_wall_ns = 0;
  std::vector<std::string> records;
};

// Everything a fresh process needs, oldest first.
struct Recovered {
  std::vector<AgentRow> agents;
  std::vector<LatestRow> latest;
  std::vector<JournalRow> journal;
  std::vector<model::Finding> findings;  // active ones, then the newest cleared ones
};

}  // namespace weft::aggregator
