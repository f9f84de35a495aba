// The gRPC side of ingest: one bidirectional stream an agent, callback API. Decodes and validates on gRPC's threads,
// hands messages to judging through the queue, and reads a stream's next message only when judging has dealt with the
// one before, so that gRPC's own flow control holds a fast agent back. gRPC headers stay inside grpc_server.cpp.
// Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "aggregator/messages.h"
#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace weft::aggregator {

struct GrpcLimits {
  std::size_t max_streams = 4096 + 256;  // agents, and some that are being replaced
  std::size_t max_memory_bytes = 512 * 1024 * 1024;
  Nanos hello_within_ns = 10 * kSecond;
  Nanos end_within_ns = 2 * kSecond;  // a peer that does not read its last words is cut off
};

class GrpcServer {
 public:
  // address: HOST:PORT, port 0 for any free one. No TLS yet, so callers pass only loopback unless told otherwise.
  static Result<std::unique_ptr<GrpcServer>> start(const std::string& address, GrpcLimits limits, MessageQueue& queue,
                                                   const Clock& clock);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const;
  // Streams turned away as there were max_streams already, since the last call. Not a message each: who floods with
  // streams must not drive out the messages of others.
  std::uint64_t take_turned_away();
  // Cuts off streams that never say hello and those that do not end. About once a second.
  void sweep();
  // No new streams; those open are given until the wait ends.
  void stop(Nanos wait_ns);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::aggregator
