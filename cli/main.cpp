// weft: the operator's view, with or without agent and aggregator.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <type_traits>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"

namespace {

using namespace weft::cli;

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
  return 100;
}

ExitCode run(const Invocation& invocation, Output& output, const weft::Clock& clock) {
  return std::visit(
      [&](const auto& options) {
        using Options = std::decay_t<decltype(options)>;
        if constexpr (std::is_same_v<Options, PingOptions>)
          return run_ping(options, output, clock);
        else if constexpr (std::is_same_v<Options, TraceOptions>)
          return run_trace(options, output, clock);
        else if constexpr (std::is_same_v<Options, MeshOptions>)
          return run_mesh(options, output, clock);
        else if constexpr (std::is_same_v<Options, FindingsOptions>)
          return run_findings(options, output, clock);
        else if constexpr (std::is_same_v<Options, StatusOptions>)
          return run_status(options, output, clock);
        else if constexpr (std::is_same_v<Options, ResponderOptions>)
          return run_responder(options, output, clock);
        else
          return run_version(options, output, clock);
      },
      invocation.command);
}

// A reader that went away (| head) has seen enough; any other loss of output must not look like a healthy answer.
ExitCode written(ExitCode code) {
  std::cout.flush();
  if (std::cout.good()) return code;
  if (::write(STDOUT_FILENO, "\n", 1) >= 0 || errno == EPIPE) return code;
  std::cerr << "weft: the output could not be written: " << std::strerror(errno) << std::endl;
  return ExitCode::CannotMeasure;
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = parse_command_line(argc, argv);
  Output output{std::cout, std::cerr, false, Paint(false), Paint(false), false, 100};
  if (const auto* end = std::get_if<ParseEnd>(&parsed)) {
    if (end->error.empty()) {
      std::cout << end->out;
      return static_cast<int>(written(end->code));
    }
    output.json = end->json;
    const std::string command = end->command.empty() ? "" : end->command + " ";
    return static_cast<int>(output.fail(end->command, end->code,
                                        weft::make_error(weft::Error::Kind::Invalid, end->error),
                                        "try `weft " + command + "--help`"));
  }
  const Invocation& invocation = std::get<Invocation>(parsed);
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  output.json = invocation.json;
  output.paint = Paint(colour_wanted(invocation.colour, ::isatty(STDOUT_FILENO) == 1, no_color, term));
  output.err_paint = Paint(colour_wanted(invocation.colour, ::isatty(STDERR_FILENO) == 1, no_color, term));
  output.err_is_terminal = ::isatty(STDERR_FILENO) == 1;
  output.width = terminal_width();
  weft::log::set_level(weft::log::Level::Error);  // commands say what went wrong themselves
  catch_stop_signals();
  const weft::SystemClock clock;
  return static_cast<int>(written(run(invocation, output, clock)));
}
