// The per-fabric secret that authenticates hellos and probes (keyed BLAKE2b of libsodium, 16-byte tags).
// Never logged. Copies are plain values.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "lib/base/files.h"
#include "lib/base/result.h"

namespace weft::probes {

inline constexpr std::size_t kMacBytes = 16;
using Mac = std::array<std::uint8_t, kMacBytes>;

class FabricKey {
 public:
  // The well-known key of a fabric without a secret: keeps strangers' garbage out, not an attacker.
  FabricKey();
  // 64 hex digits, white space around them allowed. Invalid otherwise; the text is not in the message.
  static Result<FabricKey> parse(const std::string& hex);
  static Result<FabricKey> load(const FileReader& files, const std::string& path);

  Mac mac(std::span<const std::uint8_t> bytes) const;
  // Constant time.
  bool verify(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> tag) const;
  bool is_default() const { return is_default_; }

 private:
  std::array<std::uint8_t, 32> bytes_{};
  bool is_default_ = true;
};

}  // namespace weft::probes
