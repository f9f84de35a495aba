// Asks an aggregator over its HTTP JSON API. Answers come as structs, each with the document as it came (for --json);
// nlohmann and httplib stay inside the .cpp. Every call ends by its deadline, or sooner when stopped. Errors say what
// to do; by kind: Timeout and Transient: no aggregator or no answer; Invalid: it refused the request (its own words);
// NotFound; Malformed: something else answered there. Not thread safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/client/http.h"
#include "lib/model/finding.h"

namespace weft::client {

inline constexpr const char* kDefaultUrl = "http://127.0.0.1:7470";

struct Options {
  std::string url = kDefaultUrl;
  std::chrono::milliseconds deadline{3000};  // of each call, all in all
  StopAsked stopped;                         // ends a call that waits, as Transient
};

struct Status {
  std::string fabric, version;
  unsigned agents_expected = 0, agents_reporting = 0;
  unsigned links = 0, links_covered = 0;
  bool ready = false;                  // evidence enough everywhere to call silence healthy
  std::vector<std::string> uncovered;  // link subjects
  bool store_acknowledging = true;
  std::string store_problem;
  std::string document;
};

struct Findings {
  std::vector<model::Finding> findings;  // active first; times are the aggregator's wall clock
  std::size_t total = 0;                 // more than listed when the limit cut
  std::string document;
};

struct FindingsFilter {
  std::string state;    // "active", "cleared", "all" or empty: all
  std::string since;    // RFC 3339 or a duration ("10m")
  std::string kind;     // "link_loss"
  std::string subject;  // exact, or a prefix that ends with '*'
  std::size_t limit = 1000;
};

struct MeshCell {
  std::string from, to, state;  // "h1/rxe0"; "ok" | "loss" | "late" | "ce" | "silent" | "unknown"
  std::uint64_t sent = 0, lost = 0, ce = 0, ecn_capable = 0;
  std::optional<Nanos> rtt_median_ns, rtt_p90_ns;
  unsigned paths = 0;
};

struct Mesh {
  std::vector<MeshCell> cells;
  std::string document;
};

class AggregatorClient {
 public:
  // Invalid when the URL is neither http://HOST[:PORT] nor HOST:PORT.
  static Result<AggregatorClient> create(Options options);
  AggregatorClient(AggregatorClient&&) noexcept;
  AggregatorClient& operator=(AggregatorClient&&) noexcept;
  ~AggregatorClient();

  Result<Status> status();
  Result<Findings> findings(const FindingsFilter& filter);
  Result<model::Finding> acknowledge(const std::string& id);
  // How many were active.
  Result<std::size_t> clear();
  Result<Mesh> mesh();
  // The document at a path ("/api/v1/links"), checked to be JSON of a schema this build knows.
  Result<std::string> document(const std::string& path);

 private:
  struct Impl;
  explicit AggregatorClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::client
