#include "lib/model/finding.h"

#include <array>

namespace weft::model {
namespace {

constexpr std::array<FindingKindInfo, 8> kCatalogue{{
    {FindingKind::LinkLoss, "link_loss", Severity::Critical, "link",
     "Probes that cross this link are lost; sibling paths that avoid it are clean.",
     "Error and discard counters of the two ports at the ends of the link, then its optics and cable."},
    {FindingKind::LinkDelay, "link_delay", Severity::Warning, "link",
     "Probes that cross this link are late against sibling paths of the same host pairs in the same window.",
     "Queue depth and pause counters of the sending port; who else sends over the link."},
    {FindingKind::LinkEcn, "link_ecn", Severity::Warning, "link",
     "Probes that cross this link arrive marked Congestion Experienced.",
     "Load and ECN thresholds of the sending port; flows that share it; ECMP imbalance."},
    {FindingKind::LinkDown, "link_down", Severity::Critical, "link",
     "No probe crosses this link, or its carrier or port state says that it is down.",
     "Port state at both ends; cable; transceiver; whether the switch port was shut by an operator."},
    {FindingKind::RnicUnreachable, "rnic_unreachable", Severity::Critical, "rnic",
     "This RDMA device fails with most of its peers while its host answers.",
     "rdma link show on the host; kernel log of the driver; GID table; port state."},
    {FindingKind::HostSilent, "host_silent", Severity::Critical, "host",
     "The host sends no report and answers no probe, and announced no stop.",
     "Whether the host is up (management console), then whether weftd runs and can reach the aggregator."},
    {FindingKind::HostOverloaded, "host_overloaded", Severity::Warning, "host",
     "The host schedules weftd late, so timeouts it takes part in accuse nobody.",
     "CPU pressure (/proc/pressure/cpu), real-time tasks, interrupt load, CPU quota of weftd."},
    {FindingKind::CannotMeasure, "cannot_measure", Severity::Info, "any",
     "Something cannot be measured here; this is not a statement about health.",
     "The summary says what is missing and how to get it."},
}};

}  // namespace

std::span<const FindingKindInfo> finding_catalogue() { return kCatalogue; }

const FindingKindInfo& finding_info(FindingKind kind) { return kCatalogue.at(static_cast<std::size_t>(kind)); }

std::optional<FindingKind> parse_finding_kind(std::string_view name) {
  for (const FindingKindInfo& info : kCatalogue) {
    if (info.name == name) return info.kind;
  }
  return std::nullopt;
}

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::Info:
      return "info";
    case Severity::Warning:
      return "warning";
    case Severity::Critical:
      return "critical";
  }
  return "info";
}

std::optional<Severity> parse_severity(std::string_view name) {
  for (const Severity severity : {Severity::Info, Severity::Warning, Severity::Critical}) {
    if (to_string(severity) == name) return severity;
  }
  return std::nullopt;
}

std::string runbook_path(FindingKind kind) { return "docs/findings.md#" + std::string(finding_info(kind).name); }

}  // namespace weft::model
