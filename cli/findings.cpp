#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/aggregator.h"
#include "cli/commands.h"
#include "cli/findings_report.h"
#include "cli/format.h"
#include "cli/stop.h"
#include "lib/client/change_watch.h"

namespace weft::cli {
namespace {

constexpr Nanos kPoll = kSecond;
constexpr Nanos kPollBesideEvents = 10 * kSecond;  // coverage changes without a finding
constexpr const char* kInstead = "weft status here, weft mesh --direct HOST...";

FindingFilter filter_of(const FindingsOptions& o, const Clock& clock) {
  FindingFilter filter;
  filter.all = o.all;
  filter.kind = o.kind;
  filter.subject = o.subject;
  if (o.since_ns) filter.since_ns = clock.wall_ns() - *o.since_ns;
  return filter;
}

Result<client::Findings> fetch(client::AggregatorClient& client, const FindingsOptions& o) {
  client::FindingsFilter filter;
  filter.state = o.all ? "all" : "active";
  filter.kind = o.kind;
  return client.findings(filter);
}

ExitCode exit_for(const std::vector<model::Finding>& findings, const client::Status& status) {
  if (std::any_of(findings.begin(), findings.end(), counts)) return ExitCode::Findings;
  return status.ready ? ExitCode::Healthy : ExitCode::CannotMeasure;
}

ExitCode acknowledge(const FindingsOptions& o, client::AggregatorClient& client, Output& output) {
  auto taken = client.acknowledge(o.ack);
  if (!taken && taken.error().kind == Error::Kind::NotFound) {
    return output.fail("findings", ExitCode::Usage,
                       make_error(Error::Kind::NotFound, "no finding has the id \"" + o.ack + "\""),
                       "weft findings --all shows the ids, in brackets");
  }
  if (!taken) return fail_aggregator("findings", output, taken.error(), o.aggregator, kInstead);
  if (output.json) return output.finish_json("findings", ExitCode::Healthy, {{"acknowledged", finding_json(*taken)}});
  output.out << "acknowledged " << taken->id << ": " << model::finding_info(taken->kind).name << ' '
             << printable(taken->subject) << '\n'
             << std::flush;
  return ExitCode::Healthy;
}

ExitCode list(const FindingsOptions& o, client::AggregatorClient& client, Output& output, const Clock& clock) {
  auto status = client.status();
  if (!status) return fail_aggregator("findings", output, status.error(), o.aggregator, kInstead);
  auto fetched = fetch(client, o);
  if (!fetched) return fail_aggregator("findings", output, fetched.error(), o.aggregator, kInstead);
  const auto shown = select_findings(std::move(fetched->findings), filter_of(o, clock));
  const auto blind = blind_spots(*status);
  const ExitCode code = exit_for(shown, *status);
  if (output.json) {
    nlohmann::json body{
        {"aggregator", o.aggregator.address},
        {"fabric", status->fabric},
        {"findings", nlohmann::json::array()},
        {"not_listed", fetched->total > shown.size() && o.all && o.kind.empty() && o.subject.empty() && !o.since_ns
                           ? fetched->total - shown.size()
                           : 0},
        {"coverage",
         {{"ready", status->ready},
          {"agents_expected", status->agents_expected},
          {"agents_reporting", status->agents_reporting},
          {"links", status->links},
          {"links_covered", status->links_covered},
          {"not_checked", blind}}}};
    for (const auto& f : shown) body["findings"].push_back(finding_json(f));
    if (code == ExitCode::CannotMeasure) {
      body["error"] = {{"kind", "cannot_measure"}, {"message", blind.empty() ? "not ready" : blind.front()}};
    }
    return output.finish_json("findings", code, std::move(body));
  }
  for (const auto& f : shown) output.out << finding_block(f, clock.wall_ns(), output.width, output.paint) << '\n';
  if (shown.empty()) {
    output.out << (status->ready ? output.paint(Style::Good, "nothing found") + ": " +
                                       count_of(status->agents_reporting, "agent") + " report, all " +
                                       count_of(status->links, "link") + " have probes enough"
                                 : output.paint(Style::Warn, "nothing found, but this is not \"healthy\" yet"))
               << '\n';
  }
  for (const std::string& spot : blind) output.out << "not checked: " << printable(spot) << '\n';
  if (code == ExitCode::Findings) {
    output.out << "next: weft mesh shows the pairs; weft findings --ack ID when somebody is on it\n";
  }
  output.out << std::flush;
  return code;
}

void tell(const model::Finding& f, const std::string& what, Output& output, const Clock& clock) {
  if (output.json) {
    // A stream: one object a line, and a last one with the exit code.
    nlohmann::json line{
        {"schema", kJsonSchema}, {"command", "findings"}, {"change", what}, {"finding", finding_json(f)}};
    output.out << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return;
  }
  output.out << finding_change(f, what, clock.wall_ns(), output.paint) << std::endl;
}

ExitCode watch(const FindingsOptions& o, client::AggregatorClient& client, Output& output, const Clock& clock) {
  std::map<std::string, model::Finding> known;
  bool reachable = true, first = true;
  ExitCode code = ExitCode::CannotMeasure;
  std::unique_ptr<client::ChangeWatch> changes;
  while (!stop_asked() && !output.closed()) {
    const Nanos begun = clock.monotonic_ns();
    FindingsOptions everything = o;
    everything.all = true;
    auto status = client.status();
    auto fetched = status ? fetch(client, everything) : Result<client::Findings>(status.error());
    if (!fetched) {
      if (!first && stop_asked()) break;  // cut off by Ctrl-C: what is known stands
      if (first) return fail_aggregator("findings", output, fetched.error(), o.aggregator, kInstead);
      if (reachable) output.say("weft findings: " + fetched.error().message() + "; trying on");
      reachable = false;
      code = ExitCode::CannotMeasure;
    } else {
      if (!reachable) output.say("weft findings: the aggregator answers again");
      reachable = true;
      FindingFilter filter = filter_of(o, clock);
      filter.all = true;
      std::vector<model::Finding> active;
      for (model::Finding& f : select_findings(std::move(fetched->findings), filter)) {
        const auto before = known.find(f.id);
        if (before == known.end()) {
          if (f.active() || (!first && f.until_ns)) tell(f, "raised", output, clock);
          if (!first && !f.active()) tell(f, "cleared", output, clock);
        } else if (before->second.active() && !f.active()) {
          tell(f, "cleared", output, clock);
        } else if (!before->second.acknowledged && f.acknowledged) {
          tell(f, "acknowledged", output, clock);
        }
        if (f.active()) active.push_back(f);
        known[f.id] = std::move(f);
      }
      code = exit_for(active, *status);
      if (first && active.empty() && !output.json) output.say("nothing now; waiting for changes, Ctrl-C ends");
    }
    first = false;
    if (!changes) changes = std::make_unique<client::ChangeWatch>(*client::parse_endpoint(o.aggregator.address));
    const Nanos asked = clock.monotonic_ns() - begun;
    const Nanos wait = std::max<Nanos>((changes->hears() ? kPollBesideEvents : kPoll) - asked, 0);
    changes->wait(std::chrono::milliseconds(wait / kMillisecond), stop_asked);
  }
  if (output.json) {
    nlohmann::json line{{"schema", kJsonSchema}, {"command", "findings"}, {"exit_code", static_cast<int>(code)}};
    output.out << line.dump() << std::endl;
  }
  return code;
}

}  // namespace

ExitCode run_findings(const FindingsOptions& o, Output& output, const Clock& clock) {
  if (!o.kind.empty() && !model::parse_finding_kind(o.kind)) {
    std::string kinds;
    for (const auto& info : model::finding_catalogue()) kinds += (kinds.empty() ? "" : ", ") + std::string(info.name);
    return output.fail("findings", make_error(Error::Kind::Invalid, "no kind \"" + o.kind + "\""), "kinds: " + kinds);
  }
  auto client = open_client(o.aggregator);
  if (!client) return output.fail("findings", client.error());
  if (!o.ack.empty()) return acknowledge(o, *client, output);
  return o.watch ? watch(o, *client, output, clock) : list(o, *client, output, clock);
}

}  // namespace weft::cli
