// How records become rows of the store: short-lived evidence to the journal, the newest of each key to latest. Pure.
#pragma once

#include <string>

#include "aggregator/messages.h"
#include "aggregator/state/sessions.h"
#include "aggregator/store/rows.h"

namespace weft::aggregator {

// Key of latest under which an announced stop is kept.
inline constexpr const char* kGoodbyeKey = "goodbye";
std::string format_goodbye(Nanos allowance_ns);
Nanos parse_goodbye(const std::string& text);

// Key of latest of a finding that an agent sent.
std::string agent_finding_key(const model::Finding& finding);

BatchRow make_batch_row(const Session& session, const Arrived& message);

}  // namespace weft::aggregator
