// What this host has, read once.
#pragma once

#include <memory>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/files.h"
#include "lib/base/result.h"
#include "lib/model/device.h"

namespace weft::cli {

inline constexpr Nanos kInventoryWait = 5 * kSecond;

// What cannot be read is a limitation in it. Timeout when a read does not come back: the error names the file, so the
// device. files may outlive the call then.
Result<model::Inventory> host_inventory(const std::string& sys_root, Nanos within_ns = kInventoryWait,
                                        std::shared_ptr<const FileReader> files = std::make_shared<SystemFiles>());

}  // namespace weft::cli
