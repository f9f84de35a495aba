#include "cli/output.h"

#include <nlohmann/json.hpp>

namespace weft::cli {

ExitCode exit_code_for(const Error& error) {
  switch (error.kind) {
    case Error::Kind::Invalid:
      return ExitCode::Usage;
    case Error::Kind::Timeout:
      return ExitCode::Deadline;
    default:
      return ExitCode::CannotMeasure;
  }
}

ExitCode Output::fail(const std::string& command, const Error& error, const std::string& hint) {
  return fail(command, exit_code_for(error), error, hint);
}

ExitCode Output::fail(const std::string& command, ExitCode code, const Error& error, const std::string& hint) {
  err << "weft" << (command.empty() ? "" : " ") << command << ": " << err_paint(Style::Bad, printable(error.message()))
      << '\n';
  if (!hint.empty()) err << "  " << hint << '\n';
  err.flush();
  if (!json) return code;
  nlohmann::json body;
  body["error"] = {{"kind", weft::to_string(error.kind)}, {"message", error.message()}};
  if (!hint.empty()) body["error"]["hint"] = hint;
  return finish_json(command, code, std::move(body));
}

ExitCode Output::finish_json(const std::string& command, ExitCode code, nlohmann::json body) {
  body["schema"] = kJsonSchema;
  body["command"] = command;
  body["exit_code"] = static_cast<int>(code);
  out << body.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  return code;
}

void Output::say(const std::string& line) {
  err << line << '\n';
  err.flush();
}

}  // namespace weft::cli
