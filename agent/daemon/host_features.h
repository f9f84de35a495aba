// What this build and this host can do, each with its reason when off, and the service manager. The only feature #ifs
// of weftd are in host_features.cpp.
#pragma once

#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/files.h"

namespace weft::agent {

struct Feature {
  std::string name;
  bool on = false;
  std::string why;  // of off: what is missing and how to get it; of on: what it does
};

struct Roots {
  std::string sys = "/sys";
  std::string proc = "/proc";
};

std::vector<Feature> list_features(const FileReader& files, const Roots& roots);

// sd_notify; nothing where there is no service manager.
void notify_service_manager(const std::string& state);
// How often the service manager wants to hear WATCHDOG=1; 0: not at all.
Nanos watchdog_interval_ns();

}  // namespace weft::agent
