#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/direct.h"
#include "cli/format.h"
#include "cli/option_files.h"
#include "cli/stop.h"
#include "probes/packet/reject.h"

namespace weft::cli {
namespace {

constexpr Nanos kNews = 10 * kSecond;

struct Totals {
  std::uint64_t answered = 0;
  std::map<std::string, std::uint64_t> rejected;
  std::optional<std::uint32_t> low_water;
};

// "; ignored: 12 with a wrong key, or damaged; 3 over the rate", or nothing.
std::string rejected_text(const Totals& totals) {
  std::string out;
  for (std::size_t i = 0; i < probes::kRejectReasons; ++i) {
    const auto reason = static_cast<probes::Reject>(i);
    const auto row = totals.rejected.find(std::string(probes::to_string(reason)));
    if (row == totals.rejected.end() || row->second == 0) continue;
    out += (out.empty() ? "; ignored: " : "; ") + std::to_string(row->second) + ' ';
    out += probes::describe(reason);
  }
  return out;
}

}  // namespace

ExitCode run_responder(const ResponderOptions& o, Output& output, const Clock& clock) {
  auto files = read_option_files(o.direct);
  if (!files) return output.fail("responder", files.error());
  EngineNeeds needs;
  needs.key = files->key;
  needs.answer = true;
  needs.ports = o.ports;
  auto opened = Direct::open_all(o.direct, needs, clock);
  if (!opened) {
    const bool taken = opened.error().error_number == EADDRINUSE;
    return output.fail(
        "responder", opened.error(),
        taken ? "weftd or another responder is running here already: it answers, nothing more to start" : "");
  }
  Direct& direct = **opened;
  for (const std::string& note : direct.notes()) output.say("weft responder: " + note);
  for (const auto& place : direct.places()) {
    const auto endpoint = place.engine->endpoint();
    std::string ports;
    for (std::uint16_t port : endpoint.responder_ports) ports += (ports.empty() ? "" : ",") + std::to_string(port);
    output.say("answering on " + place.label + ": hello on UDP port " + std::to_string(endpoint.hello_port) +
               ", acknowledgements from ports " + (ports.empty() ? "-" : ports));
  }
  output.say(o.direct.key_file.empty() ? "no --key-file: the well-known key, so any weft may ask (answers are bounded)"
                                       : "only hosts with the same key are answered");
  output.say(o.duration_ns ? "ends after " + format_age(*o.duration_ns) + " or by Ctrl-C" : "ends by Ctrl-C");

  Totals totals;
  std::uint64_t peers = 0;
  std::string failure;
  const auto read = [&] {
    peers = totals.answered = 0;
    totals.rejected.clear();
    for (auto& place : direct.places()) {
      const probes::EngineStats stats = place.engine->take_stats();
      totals.answered += stats.answered;
      for (const auto& [reason, count] : stats.rejected) totals.rejected[reason] += count;
      if (stats.responder_low_water) {
        totals.low_water = std::min(totals.low_water.value_or(*stats.responder_low_water), *stats.responder_low_water);
      }
      peers += stats.registered_peers;
      if (failure.empty() && !place.engine->failure().empty()) failure = place.label + ": " + place.engine->failure();
    }
  };
  const Nanos started = clock.monotonic_ns();
  Nanos news_at = started + kNews;
  std::string last_news;
  while (!stop_asked() && failure.empty()) {
    const Nanos now = clock.monotonic_ns();
    if (o.duration_ns && now - started >= *o.duration_ns) break;
    read();
    if (now >= news_at) {
      news_at = now + kNews;
      const std::string news =
          count_of(peers, "peer") + ", " + count_of(totals.answered, "probe") + " answered" + rejected_text(totals);
      if (news != last_news) output.say(news);
      last_news = news;
    }
    sleep_until(clock, now + 100 * kMillisecond);
  }
  read();
  const ExitCode code = failure.empty() ? ExitCode::Healthy : ExitCode::CannotMeasure;
  if (!failure.empty() && !output.json)
    return output.fail("responder", code, make_error(Error::Kind::Internal, failure));
  if (output.json) {
    nlohmann::json body{
        {"answered", totals.answered}, {"ignored", totals.rejected}, {"endpoints", nlohmann::json::array()}};
    for (const auto& place : direct.places()) body["endpoints"].push_back(place.label);
    if (!failure.empty()) body["error"] = {{"kind", "internal"}, {"message", failure}};
    return output.finish_json("responder", code, std::move(body));
  }
  output.out << count_of(totals.answered, "probe") << " answered" << rejected_text(totals);
  if (totals.low_water) output.out << "; fewest free receive buffers " << *totals.low_water;
  output.out << '\n' << std::flush;
  return code;
}

}  // namespace weft::cli
