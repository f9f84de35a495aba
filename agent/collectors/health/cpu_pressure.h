// CPU pressure (PSI): the share of time some task waited for a CPU, over 10 s, as the kernel tells it
// (Documentation/accounting/psi.rst).
#pragma once

#include <string>
#include <string_view>

#include "lib/base/files.h"
#include "lib/base/result.h"

namespace weft::health {

// "some avg10=12.34 ..." to 0.1234. Malformed on anything else. Pure.
Result<double> parse_cpu_pressure(std::string_view text);
// Unsupported when the kernel has no PSI or it is off (psi=0).
Result<double> read_cpu_pressure(const FileReader& files, const std::string& proc_root);

}  // namespace weft::health
