// Where a command writes: results on out, narration on err; with --json exactly one object on out, on every path.
// Not thread safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

#include "cli/exit_code.h"
#include "cli/terminal.h"
#include "lib/base/result.h"

namespace weft::cli {

inline constexpr int kJsonSchema = 1;

struct Output {
  std::ostream& out;
  std::ostream& err;
  bool json = false;
  Paint paint;      // for out
  Paint err_paint;  // for err
  bool err_is_terminal = false;
  std::size_t width = 100;  // columns of the terminal

  // People: the error on err. JSON: {"schema", "command", "exit_code", "error": {"kind", "message", "hint"}} on out.
  // The code is by the kind: Invalid is a usage error, Timeout the deadline, all else cannot measure.
  ExitCode fail(const std::string& command, const Error& error, const std::string& hint = "");
  ExitCode fail(const std::string& command, ExitCode code, const Error& error, const std::string& hint = "");
  // One object, newline, invalid UTF-8 replaced, NaN as null. Adds schema, command and exit_code.
  ExitCode finish_json(const std::string& command, ExitCode code, nlohmann::json body);
  // Narration: only for people, only when asked for by a terminal or a person reading err.
  void say(const std::string& line);
  bool closed() const { return !out.good(); }  // the reader went away (| head)
};

ExitCode exit_code_for(const Error& error);

}  // namespace weft::cli
