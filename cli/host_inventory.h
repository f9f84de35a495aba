// What this host has, read once.
#pragma once

#include <string>

#include "lib/model/device.h"

namespace weft::cli {

// Never fails: what cannot be read is a limitation in it.
model::Inventory host_inventory(const std::string& sys_root);

}  // namespace weft::cli
