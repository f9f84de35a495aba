// The number that tells one life of weftd from the next: larger than every one before it on this host, also when the
// wall clock was set back, as long as the state folder can be written.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/files.h"

namespace weft::agent {

// Without a writable state folder the wall clock alone decides; problem then says why.
std::uint64_t next_epoch(const FileReader& files, const std::string& state_dir, const Clock& clock,
                         std::string& problem);

}  // namespace weft::agent
