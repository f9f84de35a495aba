#include "agent/daemon/outbox.h"

#include "tests/unit/catch.h"

using namespace weft::agent;
using weft::wire::BatchBuilder;

namespace {

Outbox outbox(OutboxLimits limits) {
  return Outbox(limits, [](std::uint64_t count) { return "gap " + std::to_string(count); });
}

Record sample(std::string bytes) { return {RecordClass::Sample, "", std::move(bytes)}; }

std::vector<std::string> taken(Outbox& box, std::size_t max_bytes = 1 << 20) {
  BatchBuilder builder(max_bytes);
  box.take(builder);
  return builder.take(1, 0).records;
}

}  // namespace

TEST_CASE("outbox: past its bound the oldest samples go, counted, and a marker says how many", "[agent]") {
  Outbox box = outbox({3, 1 << 20});
  for (int i = 0; i < 5; ++i) box.push(sample("s" + std::to_string(i)));
  CHECK(box.dropped_samples() == 2);
  CHECK(taken(box) == std::vector<std::string>{"gap 2", "s2", "s3", "s4"});
  CHECK(box.empty());
  CHECK(taken(box).empty());
}

TEST_CASE("outbox: the bound in bytes holds too", "[agent]") {
  Outbox box = outbox({1000, 10});
  box.push(sample("123456"));
  box.push(sample("abcdef"));
  CHECK(box.sample_bytes() == 6);
  CHECK(box.dropped_samples() == 1);
}

TEST_CASE("outbox: findings and state are never dropped, however many samples come", "[agent]") {
  Outbox box = outbox({2, 1 << 20});
  box.push({RecordClass::State, "inventory", "inventory"});
  box.push({RecordClass::Finding, "link_loss link:a>b", "finding"});
  for (int i = 0; i < 100; ++i) box.push(sample("s"));
  CHECK(taken(box) == std::vector<std::string>{"finding", "inventory", "gap 98", "s", "s"});
}

TEST_CASE("outbox: a newer state of the same key replaces the older one in its place", "[agent]") {
  Outbox box = outbox({10, 1 << 20});
  box.push({RecordClass::State, "a", "a1"});
  box.push({RecordClass::State, "b", "b1"});
  box.push({RecordClass::State, "a", "a2"});
  CHECK(taken(box) == std::vector<std::string>{"a2", "b1"});
  box.push({RecordClass::State, "a", "a3"});
  CHECK(taken(box) == std::vector<std::string>{"a3"});
}

TEST_CASE("outbox: what does not fit in one batch goes with the next, in order, none lost", "[agent]") {
  Outbox box = outbox({100, 1 << 20});
  for (int i = 0; i < 10; ++i) box.push(sample(std::string(20, static_cast<char>('a' + i))));
  std::string seen;
  int batches = 0;
  while (!box.empty()) {
    for (const std::string& record : taken(box, 64)) seen += record[0];
    ++batches;
  }
  CHECK(seen == "abcdefghij");
  CHECK(batches > 1);
}

TEST_CASE("outbox: a record too large ever to be sent is refused and counted", "[agent]") {
  Outbox box = outbox({10, 1 << 30});
  box.push(sample(std::string(weft::wire::kMaxRecordBytes + 1, 'x')));
  CHECK(box.refused_records() == 1);
  CHECK(box.empty());
}
