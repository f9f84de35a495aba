#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "weft_config.h"

namespace weft::cli {

ExitCode run_version(const VersionOptions&, Output& output, const Clock&) {
  const std::pair<const char*, const char*> features[] = {{"rdma", WEFT_FEATURE_RDMA},
                                                          {"systemd", WEFT_FEATURE_SYSTEMD}};
  if (output.json) {
    nlohmann::json body{{"version", WEFT_VERSION}, {"features", nlohmann::json::array()}};
    for (const auto& [name, state] : features) {
      const bool on = std::string_view(state) == "on";
      nlohmann::json feature{{"name", name}, {"on", on}};
      if (!on) feature["reason"] = std::string_view(state).starts_with("off: ") ? state + 5 : state;
      body["features"].push_back(std::move(feature));
    }
    return output.finish_json("version", ExitCode::Healthy, std::move(body));
  }
  output.out << "weft " << WEFT_VERSION << '\n';
  Table table({{""}, {""}});
  for (const auto& [name, state] : features) {
    table.add({name, {state, std::string_view(state) == "on" ? Style::Good : Style::Warn}});
  }
  output.out << table.render(output.paint, 2) << std::flush;
  return ExitCode::Healthy;
}

}  // namespace weft::cli
