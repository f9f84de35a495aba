#include "aggregator/state/store_rows.h"

#include "lib/wire/codec.h"
#include "tests/unit/catch.h"

namespace model = weft::model;
namespace wire = weft::wire;
using namespace weft::aggregator;

namespace {

BatchRow rows(const wire::Record& record) {
  Session session;
  session.agent = "h1";
  session.epoch = 3;
  Arrived message;
  message.sequence = 9;
  message.at.wall_ns = 77;
  message.records.push_back({record, wire::encode_record(record)});
  return make_batch_row(session, message);
}

}  // namespace

TEST_CASE("store rows: evidence of a moment goes to the journal, state to latest, gaps nowhere", "[aggregator]") {
  CHECK(rows(model::PathWindow{}).journal.size() == 1);
  CHECK(rows(model::HostHealth{}).journal.size() == 1);
  const auto gap = rows(wire::Gap{5});
  CHECK(gap.journal.empty());
  CHECK(gap.latest.empty());
  const auto inventory = rows(model::Inventory{});
  CHECK(inventory.journal.empty());
  REQUIRE(inventory.latest.size() == 1);
  CHECK(inventory.latest[0].key == "inventory");
  CHECK(inventory.sequence == 9);
  CHECK(inventory.epoch == 3);
}

TEST_CASE("store rows: an agent's finding is kept while active and forgotten when over", "[aggregator]") {
  model::Finding finding;
  finding.kind = model::FindingKind::HostOverloaded;
  finding.subject = "host:h1";
  auto row = rows(finding).latest.at(0);
  CHECK(row.key == "finding host_overloaded host:h1");
  CHECK(row.record.has_value());
  finding.until_ns = 5;
  CHECK_FALSE(rows(finding).latest.at(0).record.has_value());
}

TEST_CASE("store rows: counts on a trace are kept once, the way itself without them", "[aggregator]") {
  model::PathTrace trace{"h1/rxe0", "h3/rxe0", "", "", 49152, {}, true};
  trace.hops.resize(1);
  trace.hops[0].address = "10.0.0.1";
  CHECK(rows(trace).journal.empty());
  trace.hops[0].sent = 5;
  trace.hops[0].answered = 4;
  const auto row = rows(trace);
  REQUIRE(row.journal.size() == 1);
  const auto counted = wire::decode_record(row.journal[0], "h1");
  REQUIRE(counted);
  CHECK(std::get<model::PathTrace>(counted->record).hops[0].sent == 5);
  const auto bare = wire::decode_record(*row.latest.at(0).record, "h1");
  REQUIRE(bare);
  CHECK(std::get<model::PathTrace>(bare->record).hops[0].sent == 0);
  CHECK(std::get<model::PathTrace>(bare->record).hops[0].address == "10.0.0.1");
}

TEST_CASE("store rows: a goodbye's allowance comes back, damage is zero", "[aggregator]") {
  CHECK(parse_goodbye(format_goodbye(30 * weft::kSecond)) == 30 * weft::kSecond);
  CHECK(parse_goodbye("soon") == 0);
}
