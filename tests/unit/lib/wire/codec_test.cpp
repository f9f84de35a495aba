#include "lib/wire/codec.h"

#include <limits>

#include "lib/wire/bounds.h"
#include "tests/unit/catch.h"
#include "weft/v1/stream.pb.h"

namespace model = weft::model;
namespace wire = weft::wire;
using weft::kSecond;

namespace {

model::PathWindow window() {
  model::PathWindow w;
  w.key = {"h1/rxe0", "h3/rxe0", 49152, 49153};
  w.responder_epoch = 7;
  w.sent = 10;
  w.acked = 6;
  w.lost_unknown = 1;
  w.forward = {2, 8, 3, 1, 2};
  w.back = {1, 6, 0, 0, std::nullopt};
  w.rung = model::TimestampRung::KernelSoftware;
  w.rtt_median_ns = 1'500'000;
  return w;
}

model::Inventory inventory() {
  model::Inventory i;
  i.host = "h1";
  i.kernel = "6.1";
  i.version = "0.1.0";
  model::RdmaPort port;
  port.state = model::PortState::Active;
  port.link_layer = model::LinkLayer::Ethernet;
  port.rate_bits_per_s = 400'000'000'000;
  port.gids.push_back({1, *model::Gid::parse("10.0.1.2"), model::GidType::RoceV2, "eth1"});
  i.devices.push_back({"rxe0", "rxe", "0000:0000", "", {port}});
  i.endpoints.push_back({"rxe0", "rdma", "10.0.1.2", 7472, 3, {49152, 49153}, {50000}});
  i.limitations.push_back({"rnic:h1/rxe0", "no NIC clock", "use hardware that has one"});
  return i;
}

model::Finding finding() {
  model::Finding f;
  f.kind = model::FindingKind::HostOverloaded;
  f.severity = model::Severity::Warning;
  f.subject = "host:h1";
  f.confidence = 0.8;
  f.summary = "late by 300 ms";
  f.evidence = {{"max_gap", 0.3, "seconds", 1}};
  f.victims = {"path:h1/rxe0:49152>h3/rxe0"};
  f.not_checked = {"interrupt load"};
  return f;
}

template <typename Record>
void round_trips(const Record& record) {
  const auto decoded = wire::decode_record(wire::encode_record(record), "h1");
  REQUIRE(decoded);
  CHECK(decoded->rejected_parts == 0);
  REQUIRE(std::holds_alternative<Record>(decoded->record));
  CHECK(std::get<Record>(decoded->record) == record);
}

void refused(const wire::Record& record, const std::string& field,
             weft::Error::Kind kind = weft::Error::Kind::Malformed) {
  CAPTURE(field);
  const auto decoded = wire::decode_record(wire::encode_record(record), "h1");
  REQUIRE_FALSE(decoded);
  CHECK(decoded.error().kind == kind);
  CHECK_THAT(decoded.error().context, ContainsSubstring(field));
}

template <typename Word>
void agent_word_round_trips(const Word& word) {
  weft::v1::AgentMessage message;
  wire::encode(wire::AgentWord{word}, message);
  const auto back = wire::decode(message);
  REQUIRE(back);
  CHECK(std::get<Word>(*back) == word);
}

template <typename Word>
void aggregator_word_round_trips(const Word& word) {
  weft::v1::AggregatorMessage message;
  wire::encode(wire::AggregatorWord{word}, message);
  const auto back = wire::decode(message);
  REQUIRE(back);
  CHECK(std::get<Word>(*back) == word);
}

}  // namespace

TEST_CASE("wire: bytes that are no record are refused", "[wire]") {
  CHECK_FALSE(wire::decode_record("\xff\xff\xff", "h1"));
  CHECK_FALSE(wire::decode_record(std::string(wire::kMaxRecordBytes + 1, '\0'), "h1"));
  const auto unknown = wire::decode_record("", "h1");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().kind == weft::Error::Kind::NoData);
}

TEST_CASE("wire: a window that lies is refused by its field", "[wire]") {
  auto w = window();
  w.key.from = "h1";
  refused(w, "window.from");
  w = window();
  w.key.to = "h3/rxe0/1";
  refused(w, "window.to");
  w = window();
  w.key.to = "h3/\"} 1\n";
  refused(w, "window.to");
  w = window();
  w.acked = 7;
  refused(w, "window.sent");
  w = window();
  w.forward.lost = std::numeric_limits<std::uint32_t>::max();  // the sum must not wrap to the right one
  w.lost_unknown = 3;
  w.acked = 7;
  refused(w, "window.sent");
  w = window();
  w.forward.ce = 9;
  refused(w, "window.ce");
  w = window();
  w.window_ns = 0;
  refused(w, "window.window_ns");
  w = window();
  w.window_ns = std::numeric_limits<weft::Nanos>::max();
  refused(w, "window.window_ns");
  w = window();
  w.rtt_median_ns = -1;
  refused(w, "window.rtt_median_ns");
  w = window();
  w.acked_without_times = 7;
  refused(w, "window.acked_without_times");
}

TEST_CASE("wire: enums and ports out of range are refused", "[wire]") {
  weft::v1::Record record;
  REQUIRE(record.ParseFromString(wire::encode_record(window())));
  record.mutable_path_window()->set_rung(4);
  CHECK_FALSE(wire::decode_record(record.SerializeAsString(), "h1"));
  record.mutable_path_window()->set_rung(0);
  CHECK(wire::decode_record(record.SerializeAsString(), "h1"));
  record.mutable_path_window()->set_forward_port(65536);
  CHECK_FALSE(wire::decode_record(record.SerializeAsString(), "h1"));
}

TEST_CASE("wire: numbers that are not finite are refused", "[wire]") {
  model::HostHealth h;
  h.cpu_pressure_some = std::numeric_limits<double>::quiet_NaN();
  refused(h, "health.cpu_pressure_some");
  auto f = finding();
  f.confidence = std::numeric_limits<double>::infinity();
  refused(f, "finding.confidence");
  f = finding();
  f.evidence[0].value = std::numeric_limits<double>::quiet_NaN();
  refused(f, "evidence.value");
}

TEST_CASE("wire: an agent may only speak of its own host, and a word of another is told apart from garbage", "[wire]") {
  constexpr auto kForeign = weft::Error::Kind::Permission;
  auto i = inventory();
  i.host = "h2";
  refused(i, "inventory.host: not of this agent", kForeign);
  auto w = window();
  w.key.from = "h2/rxe0";
  refused(w, "window.from: not of this agent", kForeign);
  w.key.from = "h11/rxe0";
  refused(w, "window.from: not of this agent", kForeign);
  model::PathTrace trace{"h2/rxe0", "h3/rxe0", "", "", 49152, {}, false};
  refused(trace, "trace.from: not of this agent", kForeign);
  for (const char* subject :
       {"host:h2", "host:h11", "rnic:h2/rxe0", "switch:s1", "link:s1>l2", "link:l1>s1h1", "job:1", "pair:h2>h1"}) {
    auto f = finding();
    f.subject = subject;
    refused(f, "finding.subject: not of this agent", kForeign);
  }
  for (const char* subject : {"host:", "host:h1\n", "nonsense:h1", "h1"}) {
    auto f = finding();
    f.subject = subject;
    refused(f, "finding.subject");
  }
  for (const char* subject : {"host:h1", "rnic:h1/rxe0", "port:h1/rxe0/1", "link:h1>l1", "link:l1>h1", "link:h1-l1",
                              "path:h1/rxe0:49152>h3/rxe0", "pair:h1>h3"}) {
    auto f = finding();
    f.subject = subject;
    CAPTURE(subject);
    CHECK(wire::decode_record(wire::encode_record(f), "h1"));
  }
}

TEST_CASE("wire: a malformed part of an inventory is left out, counted, and hides nothing else", "[wire]") {
  auto i = inventory();
  i.devices.push_back({"bad device", "", "", "", {}});
  i.endpoints.push_back({"rxe0", "carrier pigeon", "10.0.0.1", 1, 1, {}, {}});
  i.limitations.push_back({"nowhere", "why", "how"});
  i.limitations.push_back({"rnic:h2/rxe0", "said of another host", "how"});
  const auto decoded = wire::decode_record(wire::encode_record(i), "h1");
  REQUIRE(decoded);
  CHECK(decoded->rejected_parts == 4);
  CHECK(std::get<model::Inventory>(decoded->record) == inventory());
}

TEST_CASE("wire: free text is repaired and cut when encoded", "[wire]") {
  auto f = finding();
  f.summary = "bell\x07 \xff " + std::string(5000, 'x');
  const auto decoded = wire::decode_record(wire::encode_record(f), "h1");
  REQUIRE(decoded);
  const auto& back = std::get<model::Finding>(decoded->record);
  CHECK(back.summary.substr(0, 8) == "bell? ? ");
  CHECK(back.summary.size() == wire::kMaxText);
}

TEST_CASE("wire: text that is not clean is refused", "[wire]") {
  weft::v1::Record record;
  REQUIRE(record.ParseFromString(wire::encode_record(finding())));
  record.mutable_finding()->set_summary("\x1b[2J");
  CHECK_FALSE(wire::decode_record(record.SerializeAsString(), "h1"));
}

TEST_CASE("wire: a trace that counts more answers than probes is refused", "[wire]") {
  model::PathTrace t{"h1/rxe0", "h3/rxe0", "", "", 49152, {}, false};
  t.hops.resize(1);
  t.hops[0].sent = 5;
  t.hops[0].answered = 6;
  refused(t, "trace.answered");
  t.hops[0].answered = 4;
  t.hops[0].ecn_capable = 3;
  t.hops[0].ce = 4;
  refused(t, "trace.ce");
}

TEST_CASE("wire: every record comes back as it was", "[wire]") {
  round_trips(window());
  round_trips(inventory());
  round_trips(finding());
  model::PathTrace t{"h1/rxe0", "h3/rxe0", "10.0.1.2", "10.0.3.2", 49152, {}, false};
  t.hops.resize(2);
  t.hops[0] = {1, "10.1.0.1", 10, 9, 2, 8, 1'000'000};
  t.hops[1].ttl = 2;
  round_trips(t);
  t.destination_port = 50'000;
  round_trips(t);
  model::HostHealth h;
  h.max_gap_ns = 5;
  h.cpu_pressure_some = 0.25;
  h.responder_low_water = 100;
  round_trips(h);
  round_trips(wire::Gap{17});
}

TEST_CASE("wire: an empty message or a hello with a bad name or epoch is refused", "[wire]") {
  weft::v1::AgentMessage message;
  CHECK_FALSE(wire::decode(message));
  message.mutable_hello()->set_agent("h1");
  CHECK_FALSE(wire::decode(message));
  message.mutable_hello()->set_epoch(std::numeric_limits<std::uint64_t>::max());
  CHECK_FALSE(wire::decode(message));
  message.mutable_hello()->set_epoch(1);
  CHECK(wire::decode(message));
  message.mutable_hello()->set_agent("h1/../../etc");
  CHECK_FALSE(wire::decode(message));
  message.mutable_batch()->set_sequence(0);
  CHECK_FALSE(wire::decode(message));
}

TEST_CASE("wire: words of both directions come back as they were", "[wire]") {
  agent_word_round_trips(wire::Hello{1, "lab", "h1", "boot", 5, 3, 99, "0.1.0"});
  agent_word_round_trips(wire::Batch{4, {wire::encode_record(window()), "junk"}, 12});
  agent_word_round_trips(wire::Goodbye{10 * kSecond, "restart"});
  aggregator_word_round_trips(wire::Welcome{4, kSecond, ""});
  aggregator_word_round_trips(wire::Ack{9, 2});
  model::ProbePlan plan;
  plan.revision = 3;
  plan.ports_wanted = 16;
  plan.targets.push_back({"rxe0", "h3/rxe0", "10.0.3.2", 7472, {{49152, 50000, 2.5}}});
  plan.traces.push_back({"rxe0", "h3/rxe0", "10.0.3.2", 49152, 5});
  aggregator_word_round_trips(plan);
}

TEST_CASE("wire: a plan with a hostile rate is refused", "[wire]") {
  model::ProbePlan plan;
  plan.targets.push_back({"rxe0", "h3/rxe0", "10.0.3.2", 7472, {{1, 1, std::numeric_limits<double>::infinity()}}});
  weft::v1::AggregatorMessage message;
  wire::encode(wire::AggregatorWord{plan}, message);
  CHECK_FALSE(wire::decode(message));
}
