// Numbers for people: few digits, a unit, and "-" for what is not known. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/model/path.h"

namespace weft::cli {

// "812 ns", "45.2 us", "1.23 ms", "2.50 s"; three digits.
std::string format_ns(Nanos value);
std::string format_ns(const std::optional<Nanos>& value);
// "0 %", "0.12 %", "20 %" of whole; "-" when whole is 0. Never "0 %" or "100 %" when it is not exactly that.
std::string format_share(std::uint64_t part, std::uint64_t whole);
// "100 Gb/s"
std::string format_bits(std::uint64_t bits_per_s);
// Whole seconds in two units: "8 s", "2 min 5 s", "4 h 10 min", "2 d 3 h".
std::string format_age(Nanos value);
// "the NIC's clock (nic-wall-clock)": who stamps probes, and the word that JSON and metrics have for it.
std::string format_timestamps(model::TimestampRung rung);
// "1 probe", "2 probes"
std::string count_of(std::uint64_t count, const std::string& noun);
// "2", "0.5", "500ms", "2s", "5m": a bare number is seconds. Invalid when not above 0.
Result<Nanos> parse_seconds(const std::string& text);

}  // namespace weft::cli
