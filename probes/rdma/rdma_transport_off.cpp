#include "probes/rdma/rdma_transport.h"
#include "weft_config.h"

namespace weft::probes {

Result<std::unique_ptr<Transport>> open_rdma_transport(const RdmaTransportOptions& options) {
  return make_error(Error::Kind::Unsupported, "cannot probe from RDMA device " + options.device +
                                                  ": this build has no RDMA (" WEFT_FEATURE_RDMA
                                                  "); build with libibverbs-dev, or probe over UDP");
}

}  // namespace weft::probes
