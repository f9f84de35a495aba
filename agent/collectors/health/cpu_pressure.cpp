#include "agent/collectors/health/cpu_pressure.h"

#include <charconv>

namespace weft::health {

Result<double> parse_cpu_pressure(std::string_view text) {
  constexpr std::string_view kPrefix = "some avg10=";
  const Error malformed = make_error(Error::Kind::Malformed, "pressure/cpu: " + std::string(text.substr(0, 60)));
  if (!text.starts_with(kPrefix)) return malformed;
  text.remove_prefix(kPrefix.size());
  const std::string_view number = text.substr(0, text.find(' '));
  double percent = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
  if (error != std::errc{} || end != number.data() + number.size()) return malformed;
  if (!(percent >= 0 && percent <= 100)) return malformed;
  return percent / 100;
}

Result<double> read_cpu_pressure(const FileReader& files, const std::string& proc_root) {
  const auto text = files.read(proc_root + "/pressure/cpu");
  if (text) return parse_cpu_pressure(*text);
  if (text.error().kind != Error::Kind::NotFound && text.error().kind != Error::Kind::Unsupported) return text.error();
  return make_error(Error::Kind::Unsupported, "CPU pressure: the kernel has no PSI (boot with psi=1)");
}

}  // namespace weft::health
