#include "lib/localise/claim.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace weft::localise {
namespace {

constexpr std::size_t kMaxVictims = 64;

std::string number(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  return buffer;
}

std::string whole(double value) { return number(std::round(value), 0); }

std::string plural(std::size_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

// What the claim calls the place.
std::string place(const Claim& claim, const Fabric& fabric) {
  const std::string name = claim.subject.substr(claim.subject.find(':') + 1);
  switch (claim.shape) {
    case Claim::Shape::Directed:
      return fabric.link(claim.link).is_virtual
                 ? "the fabric between " + fabric.from_label(claim.link) + " and " + fabric.to_label(claim.link)
                 : name;
    case Claim::Shape::Undirected:
      return "link " + name;
    case Claim::Shape::Switch:
      return "switch " + name;
    case Claim::Shape::Pair:
      return "the path between " + name;
    case Claim::Shape::Rnic:
      return "RDMA device " + name;
  }
  return name;
}

// 95 % Wilson bounds of a ratio.
std::pair<double, double> wilson(double bad, double all) {
  if (all <= 0) return {0, 1};
  constexpr double z = 1.96;
  const double p = bad / all;
  const double middle = (p + z * z / (2 * all)) / (1 + z * z / all);
  const double half = z * std::sqrt(p * (1 - p) / all + z * z / (4 * all * all)) / (1 + z * z / all);
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

}  // namespace

std::string percent(double ratio) { return number(ratio * 100, ratio < 0.0995 ? 2 : 1) + " %"; }

std::string duration(double ns) {
  if (ns >= 1e9) return number(ns / 1e9, 2) + " s";
  if (ns >= 1e6) return number(ns / 1e6, 1) + " ms";
  return number(ns / 1e3, 1) + " us";
}

void say_unchecked(Claim& claim, const std::string& sentence) {
  auto& all = claim.not_checked;
  if (std::find(all.begin(), all.end(), sentence) == all.end()) all.push_back(sentence);
}

double confidence(const Claim& claim) {
  const double weight = 1 - std::exp(-std::max(0.0, claim.pick.gain) / 10);
  const double apart = 0.5 + 0.5 * (1 - std::exp(-std::max(0.0, claim.pick.margin) / 5));
  return std::clamp(weight * apart * claim.factor, 0.01, 0.99);
}

model::Finding to_finding(const Claim& claim, const Fabric& fabric, const std::string& clean_sibling) {
  const model::FindingKindInfo& info = model::finding_info(claim.kind);
  model::Finding finding;
  finding.kind = claim.kind;
  finding.subject = claim.subject;
  finding.severity = info.severity;
  finding.since_ns = claim.since;
  finding.confidence = confidence(claim);
  const Tally& t = claim.tally;
  const double ratio = t.crossed > 0 ? t.bad / t.crossed : 0;
  const std::string one_way = claim.shape == Claim::Shape::Directed ? " one way" : "";
  const std::string from = " (" + whole(t.bad) + " of " + whole(t.crossed);
  const std::string tail = " in " + whole(claim.window_s) + " s, " + plural(t.bad_paths, "path") + ", " +
                           plural(t.bad_pairs.size(), "host pair") + ")";
  const std::string where = place(claim, fabric);
  std::string unit = "probes";
  std::string bad_name = "lost";
  switch (claim.question) {
    case Question::Loss:
      if (claim.kind == model::FindingKind::LinkDown) {
        finding.summary = where + " is down: no probe crosses it" + from + " lost" + tail;
      } else {
        finding.summary = where + " loses " + percent(ratio) + " of probes" + one_way + from + tail;
      }
      break;
    case Question::LateToSiblings:
    case Question::LateToPast:
      unit = "path-seconds";
      bad_name = "late";
      finding.summary = where + " delays probes" + one_way + " by " + duration(t.excess_median_ns()) + from +
                        " path-seconds late" + tail;
      finding.evidence.push_back({"excess_median", t.excess_median_ns() / 1e9, "seconds", claim.window_s});
      break;
    case Question::Ce:
      bad_name = "ce_marked";
      finding.summary =
          where + " marks " + percent(ratio) + " of probes Congestion Experienced" + one_way + from + tail;
      break;
    case Question::Bleached:
      bad_name = "bleached";
      finding.summary = "ECN cannot be measured through " + where + ": " + percent(ratio) +
                        " of ECT probes arrive with the ECN bits cleared" + from + tail;
      break;
  }
  if (!clean_sibling.empty()) finding.summary += "; " + clean_sibling;
  if (!claim.note.empty()) finding.summary += "; " + claim.note;
  const auto [low, high] = wilson(t.bad, t.crossed);
  finding.evidence.push_back({bad_name, t.bad, unit, claim.window_s});
  finding.evidence.push_back({"crossed", t.crossed, unit, claim.window_s});
  finding.evidence.push_back({"ratio", ratio, "ratio", claim.window_s});
  finding.evidence.push_back({"ratio_low_95", low, "ratio", claim.window_s});
  finding.evidence.push_back({"ratio_high_95", high, "ratio", claim.window_s});
  finding.evidence.push_back({"paths", double(t.bad_paths), "paths", claim.window_s});
  finding.evidence.push_back({"host_pairs", double(t.bad_pairs.size()), "pairs", claim.window_s});
  finding.evidence.push_back({"gain", claim.pick.gain, "nats", claim.window_s});
  finding.evidence.push_back({"margin", claim.pick.margin, "nats", claim.window_s});
  for (const std::string& victim : t.victims) {
    if (finding.victims.size() >= kMaxVictims) break;
    finding.victims.push_back(victim);
  }
  finding.not_checked = claim.not_checked;
  finding.not_checked.push_back("Counters of the switch ports were not read: only probes between hosts were judged.");
  return finding;
}

std::string describe(const Claim& claim, const Fabric& fabric, double window_s) {
  static constexpr std::array<const char*, 5> kQuestions{"loss", "delay beyond siblings", "delay beyond its past", "CE",
                                                         "bleached ECN"};
  const Tally& t = claim.tally;
  return std::string(kQuestions[static_cast<std::size_t>(claim.question)]) + " of " + fabric.link_subject(claim.link) +
         " over " + number(window_s, 1) + " s: " + number(claim.pick.bad, 1) + " of " + number(claim.pick.crossed, 1) +
         " bad (" + plural(t.bad_seconds(), "second") + ", " + std::to_string(t.bad_paths) + " of " +
         plural(t.paths, "path") + ", " + std::to_string(t.bad_pairs.size()) + " of " + plural(t.pairs.size(), "pair") +
         "), gain " + number(claim.pick.gain, 1) + " nats, margin " + number(claim.pick.margin, 1) + " nats to " +
         plural(claim.pick.rivals.size(), "rival") +
         (claim.hops
              ? "; hops: " + fabric.link_subject(claim.hops->link) + " by " + number(claim.hops->margin_nats, 1) +
                    " nats, " + whole(claim.hops->answered) + " of " + whole(claim.hops->tries) + " answered"
              : "");
}

}  // namespace weft::localise
