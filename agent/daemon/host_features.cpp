#include "agent/daemon/host_features.h"

#include "probes/trace/raw_socket.h"
#include "weft_config.h"

#if WEFT_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

namespace weft::agent {
namespace {

Feature rdma_feature(const FileReader& files, const Roots& roots) {
  const std::string folder = roots.sys + "/class/infiniband";
#if WEFT_HAVE_RDMA
  const auto devices = files.list(folder);
  if (devices && !devices->empty()) {
    std::string names;
    for (const std::string& name : *devices) names += (names.empty() ? "" : ", ") + name;
    return {"rdma", true, "probes over UD queue pairs of " + names};
  }
  return {"rdma", false, "no RDMA device under " + folder + ": load the driver of the RNIC (rdma link shows devices)"};
#else
  (void)files;
  return {"rdma", false, WEFT_FEATURE_RDMA};
#endif
}

Feature trace_feature() {
  const auto socket = probes::open_trace_socket();
  if (socket) return {"trace", true, "traces the path of every source port"};
  return {"trace", false, socket.error().message()};
}

Feature file_feature(const FileReader& files, const std::string& name, const std::string& path, const std::string& does,
                     const std::string& remedy) {
  const auto text = files.read(path);
  if (text) return {name, true, does};
  return {name, false, text.error().message() + "; " + remedy};
}

}  // namespace

std::vector<Feature> list_features(const FileReader& files, const Roots& roots) {
  std::vector<Feature> out;
  out.push_back(rdma_feature(files, roots));
  out.push_back({"udp", true, "probes over UDP where there is no RDMA device, or probe.transport asks for it"});
  out.push_back(trace_feature());
  out.push_back({"scheduling-gap", true, "knows when weftd itself was not scheduled"});
  out.push_back(file_feature(files, "cpu-pressure", roots.proc + "/pressure/cpu", "reads pressure stall information",
                             "boot with psi=1 where the kernel has it off"));
#if WEFT_HAVE_SYSTEMD
  out.push_back({"systemd", true, "readiness, reload and watchdog"});
#else
  out.push_back({"systemd", false, WEFT_FEATURE_SYSTEMD});
#endif
  return out;
}

void notify_service_manager(const std::string& state) {
#if WEFT_HAVE_SYSTEMD
  sd_notify(0, state.c_str());
#else
  (void)state;
#endif
}

Nanos watchdog_interval_ns() {
#if WEFT_HAVE_SYSTEMD
  std::uint64_t microseconds = 0;
  if (sd_watchdog_enabled(0, &microseconds) > 0) return static_cast<Nanos>(microseconds) * kMicrosecond;
#endif
  return 0;
}

}  // namespace weft::agent
