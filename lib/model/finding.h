// A finding: what is wrong, where, since when, how sure, on what evidence, who is hit and what was not checked.
// Passive data. The catalogue is the one list of kinds; docs/findings.md is generated from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"

namespace weft::model {

enum class FindingKind : std::uint8_t {
  LinkLoss,
  LinkDelay,
  LinkEcn,
  LinkDown,
  RnicUnreachable,
  HostSilent,
  HostOverloaded,
  CannotMeasure,
};

enum class Severity : std::uint8_t { Info, Warning, Critical };

struct FindingKindInfo {
  FindingKind kind;
  std::string_view name;  // "link_loss"
  Severity severity;
  std::string_view subject_type;  // "link", "rnic", "host", "any"
  std::string_view meaning;       // one sentence
  std::string_view check_first;   // what an operator looks at first
};

std::span<const FindingKindInfo> finding_catalogue();
const FindingKindInfo& finding_info(FindingKind kind);
std::optional<FindingKind> parse_finding_kind(std::string_view name);
std::string_view to_string(Severity severity);
std::optional<Severity> parse_severity(std::string_view name);

// One number behind a finding, with its unit ("probes", "ratio", "seconds") and the window it was taken over.
struct EvidenceItem {
  std::string name;
  double value = 0;
  std::string unit;
  double window_s = 0;
  bool operator==(const EvidenceItem&) const = default;
};

struct Finding {
  std::string id;  // set by the findings store; empty before
  FindingKind kind = FindingKind::CannotMeasure;
  std::string subject;
  Severity severity = Severity::Info;
  // Wall clock, ns, judged by the receiver's clock.
  Nanos since_ns = 0;             // first bad evidence
  Nanos raised_ns = 0;            // when it became a finding
  Nanos last_seen_ns = 0;         // last window that supported it
  std::optional<Nanos> until_ns;  // cleared
  double confidence = 0;          // 0..1
  std::string summary;            // one line for a person
  std::vector<EvidenceItem> evidence;
  std::vector<std::string> victims;      // subjects
  std::vector<std::string> not_checked;  // sentences
  bool acknowledged = false;
  bool active() const { return !until_ns.has_value(); }
  bool operator==(const Finding&) const = default;
};

// Relative to the documentation root.
std::string runbook_path(FindingKind kind);

}  // namespace weft::model
