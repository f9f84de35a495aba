#include "lib/client/aggregator_client.h"

#include <httplib.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "lib/base/utf8.h"

namespace weft::client {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxEcho = 200;  // of foreign text in an error

Error malformed(const std::string& url, const std::string& why) {
  return make_error(Error::Kind::Malformed,
                    "what answers at " + url + " is not a weft aggregator of this version: " + why);
}

// Foreign text goes to a terminal, so it is cleaned; a missing or odd field is its default.
std::string text(const json& from, const char* key) {
  const auto it = from.find(key);
  return it != from.end() && it->is_string() ? clean_text(it->get<std::string>(), 4096) : std::string();
}
template <typename T>
T number(const json& from, const char* key) {
  const auto it = from.find(key);
  if (it == from.end() || !it->is_number()) return T{};
  if constexpr (std::is_integral_v<T>) {
    if (it->is_number_float() || (std::is_unsigned_v<T> && !it->is_number_unsigned())) return T{};
  }
  return it->get<T>();
}
bool flag(const json& from, const char* key) {
  const auto it = from.find(key);
  return it != from.end() && it->is_boolean() && it->get<bool>();
}
std::vector<std::string> texts(const json& from, const char* key) {
  std::vector<std::string> out;
  const auto it = from.find(key);
  if (it == from.end() || !it->is_array()) return out;
  for (const json& item : *it) {
    if (item.is_string()) out.push_back(clean_text(item.get<std::string>(), 4096));
  }
  return out;
}
json object(const json& from, const char* key) {
  const auto it = from.find(key);
  return it != from.end() && it->is_object() ? *it : json::object();
}
Nanos time(const json& from, const char* key) {
  Nanos out = 0;
  parse_rfc3339(text(from, key), out);
  return out;
}
std::optional<Nanos> nanos(const json& from, const char* key) {
  const auto it = from.find(key);
  if (it == from.end() || !it->is_number_integer()) return std::nullopt;
  return it->get<Nanos>();
}

std::optional<model::Finding> finding_of(const json& from) {
  if (!from.is_object()) return std::nullopt;
  model::Finding out;
  out.id = text(from, "id");
  const auto kind = model::parse_finding_kind(text(from, "kind"));
  const auto severity = model::parse_severity(text(from, "severity"));
  if (out.id.empty() || !kind || !severity) return std::nullopt;
  out.kind = *kind;
  out.severity = *severity;
  out.subject = text(from, "subject");
  out.since_ns = time(from, "since");
  out.raised_ns = time(from, "raised_at");
  out.last_seen_ns = time(from, "last_seen_at");
  if (text(from, "state") != "active") out.until_ns = time(from, "until");
  out.confidence = number<double>(from, "confidence");
  out.summary = text(from, "summary");
  const auto evidence = from.find("evidence");
  if (evidence != from.end() && evidence->is_array()) {
    for (const json& item : *evidence) {
      if (!item.is_object()) continue;
      out.evidence.push_back(
          {text(item, "name"), number<double>(item, "value"), text(item, "unit"), number<double>(item, "window_s")});
    }
  }
  out.victims = texts(from, "victims");
  out.not_checked = texts(from, "not_checked");
  out.acknowledged = flag(from, "acknowledged");
  return out;
}

}  // namespace

struct AggregatorClient::Impl {
  Options options;
  Endpoint to;

  struct Answer {
    std::string body;
    json document;
  };
  Result<Answer> ask(const std::string& method, const std::string& path);
  Error no_answer(HttpFailure failure) const;
};

Error AggregatorClient::Impl::no_answer(HttpFailure failure) const {
  switch (failure) {
    case HttpFailure::TooLarge:
      return malformed(options.url, "the answer is too large");
    case HttpFailure::Stopped:
      return make_error(Error::Kind::Transient, "stopped before the aggregator at " + options.url + " answered");
    case HttpFailure::Deadline:
      return make_error(Error::Kind::Timeout, "the aggregator at " + options.url + " gave no answer within " +
                                                  std::to_string(options.deadline.count()) +
                                                  " ms: look at its log, or allow more time");
    case HttpFailure::Broken:
      return make_error(Error::Kind::Transient, "the aggregator at " + options.url +
                                                    " broke off without a whole answer: look at its log, or try again");
    case HttpFailure::NoConnection:
      break;
  }
  return make_error(Error::Kind::Transient,
                    "no aggregator answers at " + options.url + ": is it running? use --aggregator URL");
}

Result<AggregatorClient::Impl::Answer> AggregatorClient::Impl::ask(const std::string& method, const std::string& path) {
  HttpRequest request;
  request.to = to;
  request.method = method;
  request.path = path;
  request.deadline = options.deadline;
  request.stopped = options.stopped;
  HttpOutcome outcome = http_ask(request);
  if (!outcome.answered) return no_answer(outcome.failure);
  Answer out;
  out.body = std::move(outcome.answer.body);
  const int status = outcome.answer.status;
  out.document = json::parse(out.body, nullptr, false);
  if (out.document.is_discarded() || !out.document.is_object()) {
    return malformed(options.url, "status " + std::to_string(status) + ", no JSON");
  }
  if (status != 200) {
    const std::string detail = clean_text(text(out.document, "detail"), kMaxEcho);
    const auto kind = status == 404   ? Error::Kind::NotFound
                      : status == 503 ? Error::Kind::Transient
                                      : Error::Kind::Invalid;
    return make_error(kind, detail.empty() ? "the aggregator answers " + std::to_string(status) : detail);
  }
  if (number<int>(out.document, "schema") != 1) return malformed(options.url, "unknown schema");
  return out;
}

AggregatorClient::AggregatorClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AggregatorClient::AggregatorClient(AggregatorClient&&) noexcept = default;
AggregatorClient& AggregatorClient::operator=(AggregatorClient&&) noexcept = default;
AggregatorClient::~AggregatorClient() = default;

Result<AggregatorClient> AggregatorClient::create(Options options) {
  auto to = parse_endpoint(options.url);
  if (!to) {
    return make_error(Error::Kind::Invalid, "\"" + clean_text(options.url, kMaxEcho) +
                                                "\" is no aggregator: " + to.error().context +
                                                "; write it like 127.0.0.1:7470 or " + kDefaultUrl);
  }
  return AggregatorClient(std::make_unique<Impl>(Impl{std::move(options), std::move(*to)}));
}

Result<Status> AggregatorClient::status() {
  auto answer = impl_->ask("GET", "/api/v1/status");
  if (!answer) return answer.error();
  const json& from = answer->document;
  const json agents = object(from, "agents"), coverage = object(from, "coverage"), store = object(from, "store");
  Status out;
  out.fabric = text(from, "fabric");
  out.version = text(from, "version");
  out.agents_expected = number<unsigned>(agents, "expected");
  out.agents_reporting = number<unsigned>(agents, "reporting");
  out.links = number<unsigned>(coverage, "links");
  out.links_covered = number<unsigned>(coverage, "covered");
  out.ready = flag(coverage, "ready");
  out.uncovered = texts(coverage, "uncovered");
  out.store_acknowledging = flag(store, "acknowledging");
  out.store_problem = text(store, "problem");
  out.document = std::move(answer->body);
  return out;
}

Result<Findings> AggregatorClient::findings(const FindingsFilter& filter) {
  httplib::Params params;
  params.emplace("limit", std::to_string(filter.limit));
  if (!filter.state.empty()) params.emplace("state", filter.state);
  if (!filter.since.empty()) params.emplace("since", filter.since);
  if (!filter.kind.empty()) params.emplace("kind", filter.kind);
  if (!filter.subject.empty()) params.emplace("subject", filter.subject);
  auto answer = impl_->ask("GET", httplib::append_query_params("/api/v1/findings", params));
  if (!answer) return answer.error();
  Findings out;
  const auto list = answer->document.find("findings");
  if (list == answer->document.end() || !list->is_array()) return malformed(impl_->options.url, "no findings in it");
  for (const json& item : *list) {
    if (auto finding = finding_of(item)) out.findings.push_back(std::move(*finding));
  }
  out.total = number<std::size_t>(answer->document, "total");
  out.document = std::move(answer->body);
  return out;
}

Result<model::Finding> AggregatorClient::acknowledge(const std::string& id) {
  // Ids are of these characters; anything else would be another path.
  if (id.empty() || id.size() > 64 ||
      id.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.-") != std::string::npos) {
    return make_error(Error::Kind::Invalid, "\"" + clean_text(id, kMaxEcho) + "\" is no id of a finding");
  }
  auto answer = impl_->ask("POST", "/api/v1/findings/" + id + "/ack");
  if (!answer) return answer.error();
  auto finding = finding_of(object(answer->document, "finding"));
  if (!finding) return malformed(impl_->options.url, "no finding in it");
  return std::move(*finding);
}

Result<std::size_t> AggregatorClient::clear() {
  auto answer = impl_->ask("POST", "/api/v1/findings/clear");
  if (!answer) return answer.error();
  return number<std::size_t>(answer->document, "cleared");
}

Result<Mesh> AggregatorClient::mesh() {
  auto answer = impl_->ask("GET", "/api/v1/mesh");
  if (!answer) return answer.error();
  Mesh out;
  const auto list = answer->document.find("mesh");
  if (list == answer->document.end() || !list->is_array()) return malformed(impl_->options.url, "no mesh in it");
  for (const json& item : *list) {
    if (!item.is_object()) continue;
    MeshCell cell;
    cell.from = text(item, "from");
    cell.to = text(item, "to");
    cell.state = text(item, "state");
    cell.sent = number<std::uint64_t>(item, "sent");
    cell.lost = number<std::uint64_t>(item, "lost");
    cell.ce = number<std::uint64_t>(item, "ce");
    cell.ecn_capable = number<std::uint64_t>(item, "ecn_capable");
    cell.rtt_median_ns = nanos(item, "rtt_median_ns");
    cell.rtt_p90_ns = nanos(item, "rtt_p90_ns");
    cell.paths = number<unsigned>(item, "paths");
    out.cells.push_back(std::move(cell));
  }
  out.document = std::move(answer->body);
  return out;
}

Result<std::string> AggregatorClient::document(const std::string& path) {
  auto answer = impl_->ask("GET", path);
  if (!answer) return answer.error();
  return std::move(answer->body);
}

}  // namespace weft::client
