// What people and exporters see of the evidence: mesh, paths, links, hosts, coverage. Reads only.
#pragma once

#include <vector>

#include "lib/localise/evidence.h"
#include "lib/localise/fabric.h"
#include "lib/localise/host_book.h"
#include "lib/localise/judge.h"
#include "lib/localise/localiser.h"

namespace weft::localise {

class Views {
 public:
  Views(const LocaliserConfig& config, Fabric& fabric, const HostBook& hosts, const Evidence& evidence,
        const Judge& judge)
      : config_(config), fabric_(fabric), hosts_(hosts), evidence_(evidence), judge_(judge) {}

  std::vector<MeshCell> mesh(Nanos now) const;
  std::vector<PathView> paths(Nanos now) const;
  std::vector<LinkView> links(Nanos now) const;
  std::vector<HostView> hosts(Nanos now) const;
  Coverage coverage(Nanos now) const;

 private:
  // For fabrics in which no router answers: every host that reports probes, is probed, and is answered.
  bool all_probed(Nanos now) const;

  const LocaliserConfig& config_;
  Fabric& fabric_;
  const HostBook& hosts_;
  const Evidence& evidence_;
  const Judge& judge_;
};

}  // namespace weft::localise
