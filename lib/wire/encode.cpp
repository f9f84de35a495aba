#include <algorithm>

#include "lib/base/utf8.h"
#include "lib/wire/bounds.h"
#include "lib/wire/codec.h"
#include "weft/v1/stream.pb.h"

namespace weft::wire {
namespace {

template <typename List>
std::size_t bounded(const List& list, std::size_t limit) {
  return std::min(list.size(), limit);
}

void put(const model::GidEntry& in, v1::GidEntry& out) {
  out.set_index(in.index);
  out.set_gid(in.gid.raw.data(), in.gid.raw.size());
  out.set_type(static_cast<std::uint32_t>(in.type));
  out.set_netdev(clean_text(in.netdev, kMaxShortText));
}

void put(const model::RdmaPort& in, v1::RdmaPort& out) {
  out.set_number(in.number);
  out.set_state(static_cast<std::uint32_t>(in.state));
  out.set_link_layer(static_cast<std::uint32_t>(in.link_layer));
  if (in.rate_bits_per_s) out.set_rate_bits_per_s(*in.rate_bits_per_s);
  if (in.active_mtu_bytes) out.set_active_mtu_bytes(*in.active_mtu_bytes);
  if (in.lid) out.set_lid(*in.lid);
  for (std::size_t i = 0; i < bounded(in.gids, kMaxGids); ++i) put(in.gids[i], *out.add_gids());
  out.set_netdev(clean_text(in.netdev, kMaxShortText));
}

void put(const model::RdmaDevice& in, v1::RdmaDevice& out) {
  out.set_name(clean_text(in.name, kMaxShortText));
  out.set_driver(clean_text(in.driver, kMaxShortText));
  out.set_node_guid(clean_text(in.node_guid, kMaxShortText));
  out.set_firmware(clean_text(in.firmware, kMaxShortText));
  for (std::size_t i = 0; i < bounded(in.ports, kMaxPorts); ++i) put(in.ports[i], *out.add_ports());
}

void put(const model::ProbeEndpoint& in, v1::ProbeEndpoint& out) {
  out.set_device(clean_text(in.device, kMaxShortText));
  out.set_transport(clean_text(in.transport, kMaxShortText));
  out.set_address(clean_text(in.address, kMaxShortText));
  out.set_hello_port(in.hello_port);
  out.set_responder_epoch(in.responder_epoch);
  for (std::size_t i = 0; i < bounded(in.prober_ports, kMaxUdpPorts); ++i) out.add_prober_ports(in.prober_ports[i]);
  for (std::size_t i = 0; i < bounded(in.responder_ports, kMaxUdpPorts); ++i) {
    out.add_responder_ports(in.responder_ports[i]);
  }
}

void put(const model::Inventory& in, v1::Inventory& out) {
  out.set_host(clean_text(in.host, kMaxShortText));
  out.set_kernel(clean_text(in.kernel, kMaxShortText));
  out.set_version(clean_text(in.version, kMaxShortText));
  for (std::size_t i = 0; i < bounded(in.devices, kMaxDevices); ++i) put(in.devices[i], *out.add_devices());
  for (std::size_t i = 0; i < bounded(in.endpoints, kMaxEndpoints); ++i) put(in.endpoints[i], *out.add_endpoints());
  for (std::size_t i = 0; i < bounded(in.limitations, kMaxLimitations); ++i) {
    v1::Limitation& limitation = *out.add_limitations();
    limitation.set_subject(clean_text(in.limitations[i].subject, kMaxSubject));
    limitation.set_why(clean_text(in.limitations[i].why, kMaxText));
    limitation.set_how(clean_text(in.limitations[i].how, kMaxText));
  }
}

void put(const model::DirectionCounts& in, v1::DirectionCounts& out) {
  out.set_lost(in.lost);
  out.set_ecn_capable(in.ecn_capable);
  out.set_ce(in.ce);
  out.set_bleached(in.bleached);
  if (in.hops) out.set_hops(*in.hops);
}

void put(const model::PathWindow& in, v1::PathWindow& out) {
  out.set_from(clean_text(in.key.from, kMaxSubject));
  out.set_to(clean_text(in.key.to, kMaxSubject));
  out.set_forward_port(in.key.forward_port);
  out.set_return_port(in.key.return_port);
  out.set_responder_epoch(in.responder_epoch);
  out.set_window_ns(in.window_ns);
  out.set_sent(in.sent);
  out.set_acked(in.acked);
  out.set_lost_unknown(in.lost_unknown);
  put(in.forward, *out.mutable_forward());
  put(in.back, *out.mutable_back());
  out.set_acked_without_times(in.acked_without_times);
  out.set_late(in.late);
  out.set_duplicate(in.duplicate);
  out.set_local_error(in.local_error);
  out.set_overslept(in.overslept);
  out.set_bad_timestamp(in.bad_timestamp);
  out.set_stale(in.stale);
  out.set_throttled(in.throttled);
  out.set_rung(static_cast<std::uint32_t>(in.rung));
  if (in.rtt_min_ns) out.set_rtt_min_ns(*in.rtt_min_ns);
  if (in.rtt_median_ns) out.set_rtt_median_ns(*in.rtt_median_ns);
  if (in.rtt_p90_ns) out.set_rtt_p90_ns(*in.rtt_p90_ns);
  if (in.rtt_max_ns) out.set_rtt_max_ns(*in.rtt_max_ns);
  if (in.prober_delay_max_ns) out.set_prober_delay_max_ns(*in.prober_delay_max_ns);
  if (in.responder_delay_max_ns) out.set_responder_delay_max_ns(*in.responder_delay_max_ns);
}

void put(const model::PathTrace& in, v1::PathTrace& out) {
  out.set_from(clean_text(in.from, kMaxSubject));
  out.set_to(clean_text(in.to, kMaxSubject));
  out.set_from_address(clean_text(in.from_address, kMaxShortText));
  out.set_to_address(clean_text(in.to_address, kMaxShortText));
  out.set_source_port(in.source_port);
  out.set_destination_port(in.destination_port);
  for (std::size_t i = 0; i < bounded(in.hops, kMaxHops); ++i) {
    v1::TraceHop& hop = *out.add_hops();
    hop.set_ttl(in.hops[i].ttl);
    hop.set_address(clean_text(in.hops[i].address, kMaxShortText));
    hop.set_sent(in.hops[i].sent);
    hop.set_answered(in.hops[i].answered);
    hop.set_ce(in.hops[i].ce);
    hop.set_ecn_capable(in.hops[i].ecn_capable);
    if (in.hops[i].rtt_ns) hop.set_rtt_ns(*in.hops[i].rtt_ns);
  }
  out.set_complete(in.complete);
}

void put(const model::HostHealth& in, v1::HostHealth& out) {
  out.set_window_ns(in.window_ns);
  out.set_max_gap_ns(in.max_gap_ns);
  out.set_total_gap_ns(in.total_gap_ns);
  if (in.cpu_pressure_some) out.set_cpu_pressure_some(*in.cpu_pressure_some);
  if (in.responder_low_water) out.set_responder_low_water(*in.responder_low_water);
  out.set_probes_throttled(in.probes_throttled);
}

void put(const model::Finding& in, v1::Finding& out) {
  out.set_kind(std::string(model::finding_info(in.kind).name));
  out.set_subject(clean_text(in.subject, kMaxSubject));
  out.set_severity(std::string(model::to_string(in.severity)));
  out.set_since_ns(in.since_ns);
  out.set_raised_ns(in.raised_ns);
  out.set_last_seen_ns(in.last_seen_ns);
  if (in.until_ns) out.set_until_ns(*in.until_ns);
  out.set_confidence(in.confidence);
  out.set_summary(clean_text(in.summary, kMaxText));
  for (std::size_t i = 0; i < bounded(in.evidence, kMaxEvidence); ++i) {
    v1::EvidenceItem& item = *out.add_evidence();
    item.set_name(clean_text(in.evidence[i].name, kMaxShortText));
    item.set_value(in.evidence[i].value);
    item.set_unit(clean_text(in.evidence[i].unit, kMaxShortText));
    item.set_window_s(in.evidence[i].window_s);
  }
  for (std::size_t i = 0; i < bounded(in.victims, kMaxVictims); ++i) {
    out.add_victims(clean_text(in.victims[i], kMaxSubject));
  }
  for (std::size_t i = 0; i < bounded(in.not_checked, kMaxNotChecked); ++i) {
    out.add_not_checked(clean_text(in.not_checked[i], kMaxText));
  }
}

void put(const model::ProbePlan& in, v1::ProbePlan& out) {
  out.set_revision(in.revision);
  out.set_ports_wanted(in.ports_wanted);
  std::size_t paths = 0;
  for (std::size_t i = 0; i < bounded(in.targets, kMaxTargets); ++i) {
    v1::PlanTarget& target = *out.add_targets();
    target.set_from_device(clean_text(in.targets[i].from_device, kMaxShortText));
    target.set_to(clean_text(in.targets[i].to, kMaxSubject));
    target.set_to_address(clean_text(in.targets[i].to_address, kMaxShortText));
    target.set_hello_port(in.targets[i].hello_port);
    for (const model::PlanPath& from : in.targets[i].paths) {
      if (paths++ >= kMaxPlanPaths) break;
      v1::PlanPath& path = *target.add_paths();
      path.set_forward_port(from.forward_port);
      path.set_return_port(from.return_port);
      path.set_probes_per_s(from.probes_per_s);
    }
  }
  for (std::size_t i = 0; i < bounded(in.traces, kMaxPlanTraces); ++i) {
    v1::PlanTrace& trace = *out.add_traces();
    trace.set_from_device(clean_text(in.traces[i].from_device, kMaxShortText));
    trace.set_to(clean_text(in.traces[i].to, kMaxSubject));
    trace.set_to_address(clean_text(in.traces[i].to_address, kMaxShortText));
    trace.set_source_port(in.traces[i].source_port);
    trace.set_destination_port(in.traces[i].destination_port);
    trace.set_probes_per_hop_per_s(in.traces[i].probes_per_hop_per_s);
  }
}

struct RecordEncoder {
  v1::Record& out;
  void operator()(const model::Inventory& in) const { put(in, *out.mutable_inventory()); }
  void operator()(const model::PathWindow& in) const { put(in, *out.mutable_path_window()); }
  void operator()(const model::PathTrace& in) const { put(in, *out.mutable_path_trace()); }
  void operator()(const model::HostHealth& in) const { put(in, *out.mutable_health()); }
  void operator()(const model::Finding& in) const { put(in, *out.mutable_finding()); }
  void operator()(const Gap& in) const { out.set_gap_dropped(in.dropped); }
};

struct AgentEncoder {
  v1::AgentMessage& out;
  void operator()(const Hello& in) const {
    v1::Hello& hello = *out.mutable_hello();
    hello.set_schema(in.schema);
    hello.set_fabric(clean_text(in.fabric, kMaxShortText));
    hello.set_agent(clean_text(in.agent, kMaxShortText));
    hello.set_boot_id(clean_text(in.boot_id, kMaxShortText));
    hello.set_epoch(in.epoch);
    hello.set_first_unacknowledged(in.first_unacknowledged);
    hello.set_wall_ns(in.wall_ns);
    hello.set_version(clean_text(in.version, kMaxShortText));
  }
  void operator()(const Batch& in) const {
    v1::Batch& batch = *out.mutable_batch();
    batch.set_sequence(in.sequence);
    batch.set_wall_ns(in.wall_ns);
    for (const std::string& record : in.records) batch.add_records(record);
  }
  void operator()(const Goodbye& in) const {
    v1::Goodbye& goodbye = *out.mutable_goodbye();
    goodbye.set_restart_allowance_ns(in.restart_allowance_ns);
    goodbye.set_reason(clean_text(in.reason, kMaxText));
  }
};

struct AggregatorEncoder {
  v1::AggregatorMessage& out;
  void operator()(const Welcome& in) const {
    v1::Welcome& welcome = *out.mutable_welcome();
    welcome.set_last_stored(in.last_stored);
    welcome.set_reconnect_after_ns(in.reconnect_after_ns);
    welcome.set_refused(clean_text(in.refused, kMaxText));
  }
  void operator()(const Ack& in) const {
    v1::Ack& ack = *out.mutable_ack();
    ack.set_sequence(in.sequence);
    ack.set_rejected_records(in.rejected_records);
  }
  void operator()(const model::ProbePlan& in) const { put(in, *out.mutable_plan()); }
};

}  // namespace

std::string encode_record(const Record& record) {
  v1::Record out;
  std::visit(RecordEncoder{out}, record);
  return out.SerializeAsString();
}

void encode(const AgentWord& word, v1::AgentMessage& out) {
  out.Clear();
  std::visit(AgentEncoder{out}, word);
}

void encode(const AggregatorWord& word, v1::AggregatorMessage& out) {
  out.Clear();
  std::visit(AggregatorEncoder{out}, word);
}

}  // namespace weft::wire
