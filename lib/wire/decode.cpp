#include <cmath>

#include "lib/base/utf8.h"
#include "lib/model/subject.h"
#include "lib/wire/bounds.h"
#include "lib/wire/codec.h"
#include "weft/v1/stream.pb.h"

namespace weft::wire {
namespace {

// Gathers the first thing that is wrong, so that a decoder reads as a list of fields.
class Checker {
 public:
  bool ok() const { return wrong_.empty(); }
  Error error() const { return make_error(foreign_ ? Error::Kind::Permission : Error::Kind::Malformed, wrong_); }
  void fail(std::string_view field, std::string_view why) {
    if (wrong_.empty()) wrong_ = std::string(field) + ": " + std::string(why);
  }
  void require(bool condition, std::string_view field, std::string_view why) {
    if (!condition) fail(field, why);
  }
  // What the agent says must be of its own host.
  void own(bool condition, std::string_view field) {
    if (condition || !wrong_.empty()) return;
    foreign_ = true;
    fail(field, "not of this agent");
  }
  std::string name(const std::string& text, std::string_view field) {
    require(model::valid_name(text), field, "not a name");
    return text;
  }
  std::string optional_name(const std::string& text, std::string_view field) {
    return text.empty() ? text : name(text, field);
  }
  std::string text(const std::string& text, std::string_view field, std::size_t limit = kMaxShortText) {
    require(text.size() <= limit, field, "too long");
    require(is_clean_text(text), field, "not clean text");
    return text;
  }
  // "h1/rxe0"
  std::string host_port(const std::string& text, std::string_view field) {
    const std::size_t slash = text.find('/');
    require(slash != std::string::npos && model::valid_name(std::string_view(text).substr(0, slash)) &&
                model::valid_name(std::string_view(text).substr(slash + 1)),
            field, "not HOST/DEVICE");
    return text;
  }
  std::uint16_t port(std::uint32_t value, std::string_view field) {
    require(value <= 65535, field, "not a port");
    return static_cast<std::uint16_t>(value);
  }
  Nanos interval(std::int64_t value, std::string_view field) {
    require(value >= 0 && value <= kMaxInterval, field, "not an interval");
    return value;
  }
  double number(double value, std::string_view field, double low, double high) {
    require(std::isfinite(value) && value >= low && value <= high, field, "not a number in range");
    return value;
  }
  template <typename Enum>
  Enum enumerator(std::uint32_t value, Enum last, std::string_view field) {
    require(value <= static_cast<std::uint32_t>(last), field, "unknown value");
    return static_cast<Enum>(value);
  }

 private:
  std::string wrong_;
  bool foreign_ = false;
};

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// One or two ends of names divided by '/', '>' or '-'; enough to keep anything else out of labels, JSON and terminals.
bool valid_subject(std::string_view subject) {
  static constexpr std::string_view kTypes[] = {"host", "rnic", "port", "link", "switch",
                                                "path", "pair", "job",  "rank"};
  const std::string_view type = model::subject_type(subject);
  bool known = false;
  for (const std::string_view candidate : kTypes) known = known || candidate == type;
  if (!known || subject.size() > kMaxSubject) return false;
  std::string_view rest = subject.substr(type.size() + 1);
  unsigned dividers = 0;
  while (true) {
    const std::size_t end = rest.find_first_of("/>");
    if (!model::valid_name(rest.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    if (++dividers > 4) return false;
    rest.remove_prefix(end + 1);
  }
}

// What an agent may accuse: its own host, ports and cables, and what starts there.
bool about_host(std::string_view subject, const std::string& host) {
  const std::string_view type = model::subject_type(subject);
  const std::string_view rest = subject.substr(type.size() + 1);
  if (type == "host") return rest == host;
  if (type == "rnic" || type == "port" || type == "path") return starts_with(rest, host + "/");
  if (type == "pair") return starts_with(rest, host + ">");
  if (type == "link") {
    const std::string out = host + ">";
    const std::string in = ">" + host;
    return starts_with(rest, out) || starts_with(rest, host + "-") ||
           (rest.size() > in.size() && rest.substr(rest.size() - in.size()) == in);
  }
  return false;
}

model::GidEntry get(const v1::GidEntry& in, Checker& check) {
  model::GidEntry out;
  out.index = in.index();
  check.require(in.index() <= 65535, "gid.index", "too large");
  check.require(in.gid().size() == out.gid.raw.size(), "gid", "not 16 bytes");
  if (in.gid().size() == out.gid.raw.size()) std::copy(in.gid().begin(), in.gid().end(), out.gid.raw.begin());
  out.type = check.enumerator(in.type(), model::GidType::RoceV2, "gid.type");
  out.netdev = check.text(in.netdev(), "gid.netdev");
  return out;
}

model::RdmaPort get(const v1::RdmaPort& in, Checker& check, std::uint32_t& rejected) {
  model::RdmaPort out;
  out.number = in.number();
  check.require(in.number() <= 255, "port.number", "too large");
  out.state = check.enumerator(in.state(), model::PortState::ActiveDefer, "port.state");
  out.link_layer = check.enumerator(in.link_layer(), model::LinkLayer::InfiniBand, "port.link_layer");
  if (in.has_rate_bits_per_s()) out.rate_bits_per_s = in.rate_bits_per_s();
  if (in.has_active_mtu_bytes()) out.active_mtu_bytes = in.active_mtu_bytes();
  if (in.has_lid()) out.lid = check.port(in.lid(), "port.lid");
  out.netdev = check.text(in.netdev(), "port.netdev");
  check.require(in.gids_size() <= static_cast<int>(kMaxGids), "port.gids", "too many");
  for (const v1::GidEntry& gid : in.gids()) {
    if (!check.ok()) break;
    Checker own;
    model::GidEntry entry = get(gid, own);
    own.ok() ? out.gids.push_back(std::move(entry)) : static_cast<void>(++rejected);
  }
  return out;
}

model::RdmaDevice get(const v1::RdmaDevice& in, Checker& check, std::uint32_t& rejected) {
  model::RdmaDevice out;
  out.name = check.name(in.name(), "device.name");
  out.driver = check.text(in.driver(), "device.driver");
  out.node_guid = check.text(in.node_guid(), "device.node_guid");
  out.firmware = check.text(in.firmware(), "device.firmware");
  check.require(in.ports_size() <= static_cast<int>(kMaxPorts), "device.ports", "too many");
  for (const v1::RdmaPort& port : in.ports()) {
    if (!check.ok()) break;
    out.ports.push_back(get(port, check, rejected));
  }
  return out;
}

model::ProbeEndpoint get(const v1::ProbeEndpoint& in, Checker& check) {
  model::ProbeEndpoint out;
  out.device = check.name(in.device(), "endpoint.device");
  out.transport = in.transport();
  check.require(in.transport() == "rdma" || in.transport() == "udp", "endpoint.transport", "neither rdma nor udp");
  out.address = check.optional_name(in.address(), "endpoint.address");
  out.hello_port = check.port(in.hello_port(), "endpoint.hello_port");
  out.responder_epoch = in.responder_epoch();
  check.require(in.prober_ports_size() <= static_cast<int>(kMaxUdpPorts) &&
                    in.responder_ports_size() <= static_cast<int>(kMaxUdpPorts),
                "endpoint.ports", "too many");
  if (!check.ok()) return out;
  for (const std::uint32_t port : in.prober_ports()) {
    out.prober_ports.push_back(check.port(port, "endpoint.prober_ports"));
  }
  for (const std::uint32_t port : in.responder_ports()) {
    out.responder_ports.push_back(check.port(port, "endpoint.responder_ports"));
  }
  return out;
}

model::Limitation get(const v1::Limitation& in, const std::string& agent, Checker& check) {
  check.require(valid_subject(in.subject()), "limitation.subject", "not a subject");
  check.own(check.ok() && about_host(in.subject(), agent), "limitation.subject");
  return {in.subject(), check.text(in.why(), "limitation.why", kMaxText),
          check.text(in.how(), "limitation.how", kMaxText)};
}

model::Inventory get(const v1::Inventory& in, const std::string& agent, Checker& check, std::uint32_t& rejected) {
  model::Inventory out;
  out.host = in.host();
  check.own(in.host() == agent, "inventory.host");
  out.kernel = check.text(in.kernel(), "inventory.kernel");
  out.version = check.text(in.version(), "inventory.version");
  check.require(in.devices_size() <= static_cast<int>(kMaxDevices), "inventory.devices", "too many");
  check.require(in.endpoints_size() <= static_cast<int>(kMaxEndpoints), "inventory.endpoints", "too many");
  check.require(in.limitations_size() <= static_cast<int>(kMaxLimitations), "inventory.limitations", "too many");
  if (!check.ok()) return out;
  // One part that lies must not hide the others, so each has a checker of its own.
  const auto keep = [&](auto& list, auto part, const Checker& own) {
    own.ok() ? list.push_back(std::move(part)) : static_cast<void>(++rejected);
  };
  for (const v1::RdmaDevice& device : in.devices()) {
    Checker own;
    model::RdmaDevice part = get(device, own, rejected);
    keep(out.devices, std::move(part), own);
  }
  for (const v1::ProbeEndpoint& endpoint : in.endpoints()) {
    Checker own;
    model::ProbeEndpoint part = get(endpoint, own);
    keep(out.endpoints, std::move(part), own);
  }
  for (const v1::Limitation& limitation : in.limitations()) {
    Checker own;
    model::Limitation part = get(limitation, agent, own);
    keep(out.limitations, std::move(part), own);
  }
  return out;
}

model::DirectionCounts get(const v1::DirectionCounts& in, Checker& check) {
  model::DirectionCounts out;
  out.lost = in.lost();
  out.ecn_capable = in.ecn_capable();
  out.ce = in.ce();
  out.bleached = in.bleached();
  check.require(in.ce() <= in.ecn_capable(), "window.ce", "more than ECN-capable packets");
  if (in.has_hops()) {
    check.require(in.hops() <= 255, "window.hops", "too large");
    out.hops = static_cast<std::uint8_t>(in.hops());
  }
  return out;
}

model::PathWindow get(const v1::PathWindow& in, const std::string& agent, Checker& check) {
  model::PathWindow out;
  out.key.from = check.host_port(in.from(), "window.from");
  check.own(starts_with(in.from(), agent + "/"), "window.from");
  out.key.to = check.host_port(in.to(), "window.to");
  out.key.forward_port = check.port(in.forward_port(), "window.forward_port");
  out.key.return_port = check.port(in.return_port(), "window.return_port");
  out.responder_epoch = in.responder_epoch();
  out.window_ns = check.interval(in.window_ns(), "window.window_ns");
  check.require(in.window_ns() > 0, "window.window_ns", "empty");
  out.sent = in.sent();
  out.acked = in.acked();
  out.lost_unknown = in.lost_unknown();
  out.forward = get(in.forward(), check);
  out.back = get(in.back(), check);
  out.acked_without_times = in.acked_without_times();
  out.late = in.late();
  out.duplicate = in.duplicate();
  out.local_error = in.local_error();
  out.overslept = in.overslept();
  out.bad_timestamp = in.bad_timestamp();
  out.stale = in.stale();
  out.throttled = in.throttled();
  const std::uint64_t outcomes =
      std::uint64_t{out.acked} + out.lost_unknown + std::uint64_t{out.forward.lost} + out.back.lost;
  check.require(outcomes == out.sent, "window.sent", "is not acked + lost");
  check.require(out.acked_without_times <= out.acked, "window.acked_without_times", "more than acked");
  out.rung = check.enumerator(in.rung(), model::TimestampRung::Software, "window.rung");
  if (in.has_rtt_min_ns()) out.rtt_min_ns = check.interval(in.rtt_min_ns(), "window.rtt_min_ns");
  if (in.has_rtt_median_ns()) out.rtt_median_ns = check.interval(in.rtt_median_ns(), "window.rtt_median_ns");
  if (in.has_rtt_p90_ns()) out.rtt_p90_ns = check.interval(in.rtt_p90_ns(), "window.rtt_p90_ns");
  if (in.has_rtt_max_ns()) out.rtt_max_ns = check.interval(in.rtt_max_ns(), "window.rtt_max_ns");
  if (in.has_prober_delay_max_ns()) {
    out.prober_delay_max_ns = check.interval(in.prober_delay_max_ns(), "window.prober_delay_max_ns");
  }
  if (in.has_responder_delay_max_ns()) {
    out.responder_delay_max_ns = check.interval(in.responder_delay_max_ns(), "window.responder_delay_max_ns");
  }
  return out;
}

model::PathTrace get(const v1::PathTrace& in, const std::string& agent, Checker& check) {
  model::PathTrace out;
  out.from = check.host_port(in.from(), "trace.from");
  check.own(starts_with(in.from(), agent + "/"), "trace.from");
  out.to = check.host_port(in.to(), "trace.to");
  out.from_address = check.optional_name(in.from_address(), "trace.from_address");
  out.to_address = check.optional_name(in.to_address(), "trace.to_address");
  out.source_port = check.port(in.source_port(), "trace.source_port");
  out.destination_port = check.port(in.destination_port(), "trace.destination_port");
  check.require(in.hops_size() <= static_cast<int>(kMaxHops), "trace.hops", "too many");
  if (!check.ok()) return out;
  for (const v1::TraceHop& hop : in.hops()) {
    check.require(hop.ttl() <= 255, "trace.ttl", "too large");
    check.require(hop.sent() <= 65535 && hop.answered() <= hop.sent(), "trace.answered", "more than sent");
    check.require(hop.ecn_capable() <= hop.answered() && hop.ce() <= hop.ecn_capable(), "trace.ce",
                  "more than ECN-capable answers");
    model::TraceHop one;
    one.ttl = static_cast<std::uint8_t>(hop.ttl());
    one.address = check.optional_name(hop.address(), "trace.address");
    one.sent = static_cast<std::uint16_t>(hop.sent());
    one.answered = static_cast<std::uint16_t>(hop.answered());
    one.ce = static_cast<std::uint16_t>(hop.ce());
    one.ecn_capable = static_cast<std::uint16_t>(hop.ecn_capable());
    if (hop.has_rtt_ns()) one.rtt_ns = check.interval(hop.rtt_ns(), "trace.rtt_ns");
    out.hops.push_back(std::move(one));
  }
  out.complete = in.complete();
  return out;
}

model::HostHealth get(const v1::HostHealth& in, Checker& check) {
  model::HostHealth out;
  out.window_ns = check.interval(in.window_ns(), "health.window_ns");
  out.max_gap_ns = check.interval(in.max_gap_ns(), "health.max_gap_ns");
  out.total_gap_ns = check.interval(in.total_gap_ns(), "health.total_gap_ns");
  if (in.has_cpu_pressure_some()) {
    out.cpu_pressure_some = check.number(in.cpu_pressure_some(), "health.cpu_pressure_some", 0, 1);
  }
  if (in.has_responder_low_water()) out.responder_low_water = in.responder_low_water();
  out.probes_throttled = in.probes_throttled();
  return out;
}

model::Finding get(const v1::Finding& in, const std::string* agent, Checker& check) {
  model::Finding out;
  const auto kind = model::parse_finding_kind(in.kind());
  const auto severity = model::parse_severity(in.severity());
  check.require(kind.has_value(), "finding.kind", "unknown");
  check.require(severity.has_value(), "finding.severity", "unknown");
  out.kind = kind.value_or(model::FindingKind::CannotMeasure);
  out.severity = severity.value_or(model::Severity::Info);
  out.subject = in.subject();
  check.require(valid_subject(in.subject()), "finding.subject", "not a subject");
  if (agent != nullptr) {
    check.own(check.ok() && about_host(in.subject(), *agent), "finding.subject");
  }
  out.since_ns = in.since_ns();
  out.raised_ns = in.raised_ns();
  out.last_seen_ns = in.last_seen_ns();
  if (in.has_until_ns()) out.until_ns = in.until_ns();
  out.confidence = check.number(in.confidence(), "finding.confidence", 0, 1);
  out.summary = check.text(in.summary(), "finding.summary", kMaxText);
  check.require(in.evidence_size() <= static_cast<int>(kMaxEvidence), "finding.evidence", "too many");
  check.require(in.victims_size() <= static_cast<int>(kMaxVictims), "finding.victims", "too many");
  check.require(in.not_checked_size() <= static_cast<int>(kMaxNotChecked), "finding.not_checked", "too many");
  if (!check.ok()) return out;
  for (const v1::EvidenceItem& item : in.evidence()) {
    out.evidence.push_back(
        {check.text(item.name(), "evidence.name"), check.number(item.value(), "evidence.value", -1e300, 1e300),
         check.text(item.unit(), "evidence.unit"), check.number(item.window_s(), "evidence.window_s", 0, 1e9)});
  }
  for (const std::string& victim : in.victims()) {
    check.require(valid_subject(victim), "finding.victims", "not a subject");
    out.victims.push_back(victim);
  }
  for (const std::string& sentence : in.not_checked()) {
    out.not_checked.push_back(check.text(sentence, "finding.not_checked", kMaxText));
  }
  return out;
}

model::ProbePlan get(const v1::ProbePlan& in, Checker& check) {
  model::ProbePlan out;
  out.revision = in.revision();
  out.ports_wanted = in.ports_wanted();
  check.require(in.ports_wanted() <= kMaxUdpPorts, "plan.ports_wanted", "too large");
  check.require(in.targets_size() <= static_cast<int>(kMaxTargets), "plan.targets", "too many");
  if (!check.ok()) return out;
  std::size_t paths = 0;
  for (const v1::PlanTarget& target : in.targets()) {
    model::PlanTarget to;
    to.from_device = check.name(target.from_device(), "plan.from_device");
    to.to = check.host_port(target.to(), "plan.to");
    to.to_address = check.name(target.to_address(), "plan.to_address");
    to.hello_port = check.port(target.hello_port(), "plan.hello_port");
    paths += static_cast<std::size_t>(target.paths_size());
    check.require(paths <= kMaxPlanPaths, "plan.paths", "too many");
    if (!check.ok()) return out;
    for (const v1::PlanPath& path : target.paths()) {
      to.paths.push_back({check.port(path.forward_port(), "plan.forward_port"),
                          check.port(path.return_port(), "plan.return_port"),
                          check.number(path.probes_per_s(), "plan.probes_per_s", 0, kMaxProbesPerSecond)});
    }
    out.targets.push_back(std::move(to));
  }
  check.require(in.traces_size() <= static_cast<int>(kMaxPlanTraces), "plan.traces", "too many");
  if (!check.ok()) return out;
  for (const v1::PlanTrace& trace : in.traces()) {
    out.traces.push_back(
        {check.name(trace.from_device(), "plan.trace.from_device"), check.host_port(trace.to(), "plan.trace.to"),
         check.name(trace.to_address(), "plan.trace.to_address"),
         check.port(trace.source_port(), "plan.trace.source_port"),
         check.number(trace.probes_per_hop_per_s(), "plan.trace.probes_per_hop_per_s", 0, kMaxProbesPerSecond),
         check.port(trace.destination_port(), "plan.trace.destination_port")});
  }
  return out;
}

template <typename Word, typename Out>
Result<Word> checked(const Checker& check, Out out) {
  if (!check.ok()) return check.error();
  return Word{std::move(out)};
}

}  // namespace

Result<Decoded> decode_record(std::string_view bytes, const std::string& agent) {
  if (bytes.size() > kMaxRecordBytes) return make_error(Error::Kind::Malformed, "record: too large");
  v1::Record record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return make_error(Error::Kind::Malformed, "record: not a protobuf Record");
  }
  Checker check;
  Decoded out;
  switch (record.body_case()) {
    case v1::Record::kInventory:
      out.record = get(record.inventory(), agent, check, out.rejected_parts);
      break;
    case v1::Record::kPathWindow:
      out.record = get(record.path_window(), agent, check);
      break;
    case v1::Record::kPathTrace:
      out.record = get(record.path_trace(), agent, check);
      break;
    case v1::Record::kHealth:
      out.record = get(record.health(), check);
      break;
    case v1::Record::kFinding:
      out.record = get(record.finding(), &agent, check);
      break;
    case v1::Record::kGapDropped:
      out.record = Gap{record.gap_dropped()};
      break;
    case v1::Record::BODY_NOT_SET:
      return make_error(Error::Kind::NoData, "record: a kind this version does not know");
  }
  if (!check.ok()) return check.error();
  return out;
}

Result<model::Finding> decode_stored_finding(std::string_view bytes) {
  v1::Record record;
  if (bytes.size() > kMaxRecordBytes || !record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      !record.has_finding()) {
    return make_error(Error::Kind::Malformed, "not an encoded finding");
  }
  Checker check;
  model::Finding out = get(record.finding(), nullptr, check);
  if (!check.ok()) return check.error();
  return out;
}

Result<AgentWord> decode(const v1::AgentMessage& message) {
  Checker check;
  switch (message.body_case()) {
    case v1::AgentMessage::kHello: {
      const v1::Hello& in = message.hello();
      Hello out;
      out.schema = in.schema();
      out.fabric = check.text(in.fabric(), "hello.fabric");
      out.agent = check.name(in.agent(), "hello.agent");
      out.boot_id = check.text(in.boot_id(), "hello.boot_id");
      out.epoch = in.epoch();
      // Stored as signed 64 bit integers.
      check.require(in.epoch() > 0 && in.epoch() <= INT64_MAX, "hello.epoch", "out of range");
      out.first_unacknowledged = in.first_unacknowledged();
      out.wall_ns = in.wall_ns();
      out.version = check.text(in.version(), "hello.version");
      return checked<AgentWord>(check, std::move(out));
    }
    case v1::AgentMessage::kBatch: {
      const v1::Batch& in = message.batch();
      check.require(in.sequence() > 0 && in.sequence() <= INT64_MAX, "batch.sequence", "out of range");
      check.require(in.records_size() <= static_cast<int>(kMaxBatchRecords), "batch.records", "too many");
      if (!check.ok()) return check.error();
      return AgentWord{Batch{in.sequence(), {in.records().begin(), in.records().end()}, in.wall_ns()}};
    }
    case v1::AgentMessage::kGoodbye: {
      const v1::Goodbye& in = message.goodbye();
      Goodbye out{check.interval(in.restart_allowance_ns(), "goodbye.restart_allowance_ns"),
                  check.text(in.reason(), "goodbye.reason", kMaxText)};
      return checked<AgentWord>(check, std::move(out));
    }
    case v1::AgentMessage::BODY_NOT_SET:
      break;
  }
  return make_error(Error::Kind::NoData, "message: a kind this version does not know");
}

Result<AggregatorWord> decode(const v1::AggregatorMessage& message) {
  Checker check;
  switch (message.body_case()) {
    case v1::AggregatorMessage::kWelcome: {
      const v1::Welcome& in = message.welcome();
      Welcome out{in.last_stored(), check.interval(in.reconnect_after_ns(), "welcome.reconnect_after_ns"),
                  check.text(in.refused(), "welcome.refused", kMaxText)};
      return checked<AggregatorWord>(check, std::move(out));
    }
    case v1::AggregatorMessage::kAck:
      return AggregatorWord{Ack{message.ack().sequence(), message.ack().rejected_records()}};
    case v1::AggregatorMessage::kPlan: {
      model::ProbePlan out = get(message.plan(), check);
      return checked<AggregatorWord>(check, std::move(out));
    }
    case v1::AggregatorMessage::BODY_NOT_SET:
      break;
  }
  return make_error(Error::Kind::NoData, "message: a kind this version does not know");
}

}  // namespace weft::wire
