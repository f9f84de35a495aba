// Model types to protobuf and back. Pure, thread safe. Encoding repairs free text (clean_text) and never fails;
// decoding is strict: names by model::valid_name, enums in range, finite numbers, sizes bounded. Protobuf headers stay
// inside codec.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/wire/messages.h"

namespace weft::v1 {
class AgentMessage;
class AggregatorMessage;
}  // namespace weft::v1

namespace weft::wire {

std::string encode_record(const Record& record);

struct Decoded {
  Record record;
  // Parts of an inventory (a device, endpoint, limitation, GID) that were malformed and left out; the rest stands.
  std::uint32_t rejected_parts = 0;
};

// agent is the name from Hello: a record may only speak of that host (its inventory, paths from it, findings about it).
// Malformed says which field; Permission, that it is of another host; NoData is a record kind this build does not know
// (a newer agent).
Result<Decoded> decode_record(std::string_view bytes, const std::string& agent);

// A finding as the store keeps it (encode_record wrote it): about any subject. Id and acknowledgement are not in it.
Result<model::Finding> decode_stored_finding(std::string_view bytes);

void encode(const AgentWord& word, v1::AgentMessage& out);
Result<AgentWord> decode(const v1::AgentMessage& message);

void encode(const AggregatorWord& word, v1::AggregatorMessage& out);
Result<AggregatorWord> decode(const v1::AggregatorMessage& message);

}  // namespace weft::wire
