#include "lib/wire/batch_builder.h"

#include "tests/unit/catch.h"

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
