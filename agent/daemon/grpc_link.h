// The stream over gRPC's callback API: one channel and one call an attempt. Events are handed to post, which runs them
// on the session's thread; nothing here blocks. Channel credentials are plain: TLS is a later step, so keep the
// aggregator on a trusted network.
#pragma once

#include <functional>
#include <memory>

#include "agent/daemon/main_loop.h"
#include "agent/daemon/stream_link.h"

namespace weft::agent {

std::unique_ptr<StreamLink> make_grpc_link(Post post, std::function<void(LinkEvent)> events);

}  // namespace weft::agent
