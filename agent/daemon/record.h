// A record on its way to the aggregator: already encoded, so that bounds are in bytes and nothing here knows protobuf.
#pragma once

#include <cstdint>
#include <string>

namespace weft::agent {

enum class RecordClass : std::uint8_t {
  Sample,   // may be dropped, oldest first
  State,    // inventory, traces: a newer one of the same key replaces the older one; never dropped
  Finding,  // likewise, and goes first
};

struct Record {
  RecordClass cls = RecordClass::Sample;
  std::string key;    // State and Finding only: what it is about
  std::string bytes;  // by wire::encode_record
};

}  // namespace weft::agent
