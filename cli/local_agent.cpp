#include "cli/local_agent.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>

#include "cli/format.h"
#include "cli/stop.h"
#include "lib/client/http.h"

namespace weft::cli {
namespace {

constexpr std::size_t kMaxPage = 16 * 1024 * 1024;  // more is not weftd's

// Sum of each series over its labels.
std::map<std::string, double> sums(const std::string& page) {
  std::map<std::string, double> out;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t name_end = line.find_first_of("{ ");
    const std::size_t value_at = line.rfind(' ');
    if (name_end == std::string::npos || value_at == std::string::npos) continue;
    double value = 0;
    const char* end = line.data() + line.size();
    if (std::from_chars(line.data() + value_at + 1, end, value).ptr != end || !std::isfinite(value)) continue;
    out[line.substr(0, name_end)] += value;
  }
  return out;
}

}  // namespace

AgentState agent_state_of(const std::string& page) {
  const auto values = sums(page);
  AgentState state;
  const auto value = [&](const char* name) -> std::optional<double> {
    const auto it = values.find(name);
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
  bool any = false;
  for (const auto& [name, sum] : values) any |= name.starts_with("weft_");
  if (!any) {
    state.text = "something answers there, but it is not weftd";
    return state;
  }
  state.answers = true;
  state.text = "running";
  if (const auto connected = value("weft_stream_connected")) {
    state.text += *connected > 0 ? ", aggregator connected" : ", aggregator not connected";
  }
  if (const auto sent = value("weft_probe_sent_total")) {
    state.text += ", " + std::to_string(static_cast<std::uint64_t>(*sent)) + " probes sent";
  }
  return state;
}

AgentState ask_local_agent(const std::string& url, Nanos deadline_ns) {
  AgentState state;
  const auto to = client::parse_endpoint(url);
  if (!to) {
    state.text = "no valid URL: " + url + " (" + to.error().context + ")";
    return state;
  }
  client::HttpRequest request;
  request.to = *to;
  request.path = "/metrics";
  request.deadline = std::chrono::milliseconds(std::max<Nanos>(1, deadline_ns / kMillisecond));
  request.max_body_bytes = kMaxPage;
  request.stopped = stop_asked;
  const auto outcome = client::http_ask(request);
  if (!outcome.answered) {
    state.text = outcome.failure == client::HttpFailure::NoConnection ? "not running" : "does not answer at " + url;
    return state;
  }
  if (outcome.answer.status != 200) {
    state.text = url + " answers with status " + std::to_string(outcome.answer.status);
    return state;
  }
  return agent_state_of(outcome.answer.body);
}

}  // namespace weft::cli
