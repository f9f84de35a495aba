// Which requests are known and what answers each: the one table of routes. docs/openapi.json describes them, and
// tests/integration/api holds the two together. Thread safe.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/export/api_json.h"
#include "aggregator/export/api_query.h"
#include "aggregator/messages.h"
#include "aggregator/state/snapshot.h"
#include "lib/base/clock.h"
#include "lib/http/event_stream.h"
#include "lib/metrics/page_format.h"

namespace weft::aggregator {

// Answers with a problem document; the title is the status's own.
void refuse(httplib::Response& response, int status, const std::string& detail);
void refuse(httplib::Response& response, Problem problem);

class Api {
 public:
  struct Parts {
    std::function<std::shared_ptr<const Snapshot>()> snapshot;
    std::function<std::string(metrics::PageFormat)> metrics;  // the page
    MessageQueue& queue;
    const Clock& clock;
    http::EventStream& events;
    std::string version;
    std::chrono::milliseconds command_wait;  // for judging to answer
    Nanos stale_after_ns;                    // without a judgement for so long /healthz answers 503
  };
  explicit Api(Parts parts) : parts_(std::move(parts)) {}

  // GET, HEAD and POST.
  void serve(const httplib::Request& request, httplib::Response& response);
  // "GET /api/v1/findings/{id}", each route.
  static std::vector<std::string> known();

 private:
  struct Call {
    const httplib::Request& request;
    httplib::Response& response;
    std::string id;  // what stands in the path for {id}
  };
  struct Route {
    const char* method;
    const char* path;
    void (Api::*serve)(const Call&);
  };
  static const std::vector<Route>& routes();

  void status(const Call& call);
  void findings(const Call& call);
  void finding(const Call& call);
  void acknowledge(const Call& call);
  void clear(const Call& call);
  void mesh(const Call& call);
  void paths(const Call& call);
  void links(const Call& call);
  void hosts(const Call& call);
  void host(const Call& call);
  void watch(const Call& call);
  void console(const Call& call);
  void health(const Call& call);
  void page(const Call& call);

  // Parses, sets where pages go on, and answers, or refuses.
  template <typename Query, typename Body>
  void list(const Call& call, Parsed<Query> query, Body body);
  static bool refused(const Call& call);

  const Parts parts_;
};

}  // namespace weft::aggregator
