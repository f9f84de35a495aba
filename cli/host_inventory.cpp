#include "cli/host_inventory.h"

#include <sys/utsname.h>

#include "agent/collectors/inventory/inventory_reader.h"
#include "cli/host_name.h"
#include "lib/base/files.h"
#include "weft_config.h"

namespace weft::cli {

model::Inventory host_inventory(const std::string& sys_root) {
  model::Inventory out = inventory::read_inventory(SystemFiles(), sys_root, own_host_name());
  utsname system{};
  if (::uname(&system) == 0) out.kernel = system.release;
  out.version = WEFT_VERSION;
  return out;
}

}  // namespace weft::cli
