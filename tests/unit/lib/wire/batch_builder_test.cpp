#include "lib/wire/batch_builder.h"

#include "lib/wire/codec.h"
#include "tests/unit/catch.h"
#include "weft/v1/stream.pb.h"

namespace wire = weft::wire;
using Added = wire::BatchBuilder::Added;

TEST_CASE("batch builder: a record that could never be sent is refused for good", "[wire]") {
  wire::BatchBuilder builder;
  CHECK(builder.add(std::string(wire::kMaxRecordBytes + 1, 'x')) == Added::TooLarge);
  CHECK(builder.empty());
}

TEST_CASE("batch builder: stops at the bound of bytes or records and keeps what did not fit", "[wire]") {
  wire::BatchBuilder builder(100, 3);
  std::string record(60, 'a');
  CHECK(builder.add(std::string(record)) == Added::Yes);
  CHECK(builder.add(std::move(record)) == Added::Full);
  CHECK(record.size() == 60);
  CHECK(builder.records() == 1);
  const auto batch = builder.take(7, 9);
  CHECK(batch.sequence == 7);
  CHECK(batch.records.size() == 1);
  CHECK(builder.empty());
  CHECK(builder.bytes() == 0);
  for (int i = 0; i < 3; ++i) CHECK(builder.add("r") == Added::Yes);
  CHECK(builder.add("r") == Added::Full);
}

TEST_CASE("batch builder: a record larger than a whole batch goes alone", "[wire]") {
  wire::BatchBuilder builder(100, 3);
  CHECK(builder.add(std::string(500, 'x')) == Added::Yes);
  CHECK(builder.add("r") == Added::Full);
}

TEST_CASE("batch builder: whatever the size of records, a full batch is far below the limit of a message when encoded",
          "[wire]") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{127}, std::size_t{128},
                                 std::size_t{16'384}, wire::kMaxRecordBytes / 2 + 1, wire::kMaxRecordBytes}) {
    INFO("records of " << size << " bytes");
    wire::BatchBuilder builder;
    std::size_t records = 0;
    while (builder.add(std::string(size, 'x')) == Added::Yes) REQUIRE(++records <= 1'000'000);
    // Sequence and time as large as they come.
    weft::v1::AgentMessage message;
    wire::encode(wire::AgentWord(builder.take(INT64_MAX, INT64_MAX)), message);
    CHECK(message.ByteSizeLong() <= wire::kMaxBatchBytes + 64);
    CHECK(message.ByteSizeLong() <= wire::kMaxMessageBytes / 2);
    // And the other end takes it for what it was.
    const auto back = wire::decode(message);
    REQUIRE(back);
    CHECK(std::get<wire::Batch>(*back).records.size() == records);
  }
}
