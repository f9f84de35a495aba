#include "aggregator/state/store_rows.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "lib/wire/codec.h"

namespace weft::aggregator {
namespace {

// Empty: belongs to the journal. "-": is not stored.
struct KeyOf {
  std::string operator()(const model::Inventory&) const { return "inventory"; }
  std::string operator()(const model::PathTrace& trace) const {
    return "trace " + trace.from + " " + std::to_string(trace.source_port) + " " + trace.to +
           (trace.destination_port != 0 ? " " + std::to_string(trace.destination_port) : "");
  }
  std::string operator()(const model::Finding& finding) const { return agent_finding_key(finding); }
  std::string operator()(const model::PathWindow&) const { return ""; }
  std::string operator()(const model::HostHealth&) const { return ""; }
  std::string operator()(const wire::Gap&) const { return "-"; }
};

bool counts(const model::PathTrace& trace) {
  return std::any_of(trace.hops.begin(), trace.hops.end(), [](const model::TraceHop& hop) { return hop.sent != 0; });
}

model::PathTrace without_counts(model::PathTrace trace) {
  for (model::TraceHop& hop : trace.hops) {
    model::TraceHop bare;
    bare.ttl = hop.ttl;
    bare.address = std::move(hop.address);
    hop = std::move(bare);
  }
  return trace;
}

}  // namespace

std::string format_goodbye(Nanos allowance_ns) { return std::to_string(allowance_ns); }

Nanos parse_goodbye(const std::string& text) {
  Nanos value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string agent_finding_key(const model::Finding& finding) {
  return "finding " + std::string(model::finding_info(finding.kind).name) + " " + finding.subject;
}

BatchRow make_batch_row(const Session& session, const Arrived& message) {
  BatchRow out{session.agent, session.epoch, message.sequence, message.at.wall_ns, {}, {}, message.records.size()};
  for (const ValidRecord& record : message.records) {
    const std::string key = std::visit(KeyOf{}, record.record);
    if (key == "-") continue;
    if (key.empty()) {
      out.journal.push_back(record.bytes);
      continue;
    }
    std::string bytes = record.bytes;
    if (const auto* trace = std::get_if<model::PathTrace>(&record.record); trace != nullptr && counts(*trace)) {
      // The way is kept long, what was counted on it only as long as other evidence, and never both.
      out.journal.push_back(std::exchange(bytes, wire::encode_record(without_counts(*trace))));
    }
    const auto* finding = std::get_if<model::Finding>(&record.record);
    const bool over = finding != nullptr && !finding->active();
    out.latest.push_back({session.agent, key, over ? std::nullopt : std::optional(bytes), message.at.wall_ns});
  }
  return out;
}

}  // namespace weft::aggregator
