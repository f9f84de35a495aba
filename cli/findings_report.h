// Findings as an operator at 2 a.m. wants them: what, where, since when, how sure, who is hit, on what evidence, what
// was not checked, what to look at first. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "lib/base/clock.h"
#include "lib/client/aggregator_client.h"
#include "lib/model/finding.h"

namespace weft::cli {

struct FindingFilter {
  bool all = false;  // also cleared and acknowledged ones
  std::string kind, subject;
  std::optional<Nanos> since_ns;  // wall clock: not begun before
};

// Matching ones, worst first: active before cleared, unacknowledged first, then by severity, then the oldest first.
std::vector<model::Finding> select_findings(std::vector<model::Finding> findings, const FindingFilter& filter);
// Active, not acknowledged and at least a warning: what makes the exit code 1.
bool counts(const model::Finding& finding);

std::string finding_block(const model::Finding& finding, Nanos wall_now, std::size_t width, const Paint& paint);
// One line for --watch: "18:31:02 raised link_loss link:s1>l2 ...", with the time of the change, which may be long
// before the watch began; "2026-12-01 18:31:02" when that is not today.
std::string finding_change(const model::Finding& finding, const std::string& what, Nanos wall_now, const Paint& paint);
std::string evidence_sentence(const model::Finding& finding);
nlohmann::json finding_json(const model::Finding& finding);
// What keeps "nothing found" from meaning "healthy", a sentence each; empty when all is covered.
std::vector<std::string> blind_spots(const client::Status& status);

}  // namespace weft::cli
