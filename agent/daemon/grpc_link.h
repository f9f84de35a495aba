// The stream over gRPC's callback API: one channel and one call an attempt. Events are handed to post, which runs them
// on the session's thread; nothing here blocks. Channel credentials are plain: TLS is a later step, so keep the
// aggregator on a trusted network.
#pragma once

#include <functional>
#include <memory>

#include "agent/daemon/main_loop.h"
#include "agent/daemon/stream_link.h"

namespace weft::agent {

// Makes links and buries their calls: a channel must not be destroyed by a callback of its own, because gRPC then joins
// the very thread it runs on (and aborts, 1.51). Main loop only.
class GrpcLinks {
 public:
  explicit GrpcLinks(Post post);
  // Waits up to a second for cancelled calls to end; links are gone by then.
  ~GrpcLinks();
  GrpcLinks(const GrpcLinks&) = delete;
  GrpcLinks& operator=(const GrpcLinks&) = delete;

  std::unique_ptr<StreamLink> make(std::function<void(LinkEvent)> events);

 private:
  struct Calls;
  Post post_;
  std::shared_ptr<Calls> calls_;
};

}  // namespace weft::agent
