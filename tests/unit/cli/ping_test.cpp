#include <nlohmann/json.hpp>

#include "cli/ping_report.h"
#include "cli/ping_stats.h"
#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::cli;
using probes::ProbeOutcome;
using probes::ProbeResult;

namespace {

ProbeOutcome ok(std::uint64_t sequence, Nanos rtt, std::uint16_t port = 49152) {
  ProbeOutcome o;
  o.key = {"h1/rxe0", "h3", port, 50000};
  o.sequence = sequence;
  o.result = ProbeResult::Ok;
  o.rtt_ns = rtt;
  o.prober_delay_ns = 12'000;
  o.responder_delay_ns = 8'000;
  o.forward_tos = o.back_tos = 2;
  o.forward_hop_limit = o.back_hop_limit = 61;
  return o;
}

ProbeOutcome ended(std::uint64_t sequence, ProbeResult result, std::uint16_t port = 49152) {
  ProbeOutcome o;
  o.key = {"h1/rxe0", "h3", port, 50000};
  o.sequence = sequence;
  o.result = result;
  return o;
}

model::PathWindow window(std::uint32_t forward, std::uint32_t back, std::uint16_t port = 49152) {
  model::PathWindow w;
  w.key = {"h1/rxe0", "h3", port, 50000};
  w.forward.lost = forward;
  w.back.lost = back;
  return w;
}

HostReport report_of(const PingStats& stats) {
  HostReport r;
  r.host = "h3";
  r.address = "10.0.3.2";
  r.local = "rdma rxe0 port 1, 10.0.1.2";
  r.answered = true;
  r.summary = stats.summary();
  return r;
}

}  // namespace

TEST_CASE("quantiles are nearest-rank, and of nothing they are absent", "[cli]") {
  Quantiles q;
  CHECK_FALSE(q.at(0.5));
  CHECK_FALSE(q.min());
  for (Nanos v = 1; v <= 100; ++v) q.add(v);
  CHECK(q.min() == 1);
  CHECK(q.at(0.5) == 50);
  CHECK(q.at(0.9) == 90);
  CHECK(q.at(0.99) == 99);
  CHECK(q.at(1) == 100);
  CHECK(q.max() == 100);
}

TEST_CASE("quantiles of very many samples stay bounded and near the truth", "[cli]") {
  Quantiles q;
  for (Nanos v = 0; v < 300'000; ++v) q.add(v);
  CHECK(q.count() == 300'000);
  CHECK(q.max() == 299'999);
  CHECK(std::abs(*q.at(0.5) - 150'000) < 5'000);
}

TEST_CASE("an answer after the timeout is late, not lost, and no path is blamed for it", "[cli]") {
  PingStats stats;
  stats.add(ok(1, 1000));
  stats.add(ended(2, ProbeResult::Timeout));
  stats.add(ended(3, ProbeResult::Timeout));
  stats.add(ended(2, ProbeResult::Late));
  stats.add(ended(1, ProbeResult::Duplicate));
  const auto s = stats.summary();
  CHECK(s.sent == 3);
  CHECK(s.lost == 1);
  CHECK(s.acked == 1);
  CHECK(s.late == 1);
  CHECK(s.duplicate == 1);
  CHECK(s.lost_unknown == 1);
  CHECK(s.ports.front().lost == 1);
  PingStats slow;
  slow.add(ended(1, ProbeResult::Timeout));
  slow.add(ended(1, ProbeResult::Late));
  CHECK(slow.summary().lost == 0);
  CHECK(ping_exit(report_of(slow)) == ExitCode::Findings);
  CHECK(ping_json(report_of(slow))["late"] == 1);
  CHECK_THAT(ping_report(report_of(slow), Paint(false)), ContainsSubstring("also: 1 answered after the timeout"));
}

TEST_CASE("what the own host did wrong is no loss", "[cli]") {
  PingStats stats;
  stats.add(ended(1, ProbeResult::LocalError));
  stats.add(ended(2, ProbeResult::Overslept));
  stats.add(ended(3, ProbeResult::Stale));
  const auto s = stats.summary();
  CHECK(s.sent == 0);
  CHECK_FALSE(s.lossy());
  CHECK(ping_exit(report_of(stats)) == ExitCode::CannotMeasure);
}

TEST_CASE("nothing lost of the few probes that count, while the own host was late, is no health", "[cli]") {
  PingStats stats;
  for (std::uint64_t i = 1; i <= 20; ++i) stats.add(ok(i, 1000));
  for (std::uint64_t i = 21; i <= 22; ++i) stats.add(ended(i, ProbeResult::Overslept));
  CHECK(ping_exit(report_of(stats)) == ExitCode::Healthy);
  stats.add(ended(23, ProbeResult::Overslept));
  const HostReport r = report_of(stats);
  CHECK(ping_exit(r) == ExitCode::CannotMeasure);
  const std::string why = "3 more probes may have been lost, and cannot count: this host was late itself";
  CHECK(ping_json(r)["error"]["message"] == why);
  CHECK_THAT(ping_report(r, Paint(false)), ContainsSubstring("0 of 20 (0 %) lost: cannot measure: " + why));
  stats.add(ended(24, ProbeResult::Timeout));
  CHECK(ping_exit(report_of(stats)) == ExitCode::Findings);
}

TEST_CASE("acknowledged without times is alive, not lost", "[cli]") {
  PingStats stats;
  stats.add(ended(1, ProbeResult::AckWithoutTimes));
  CHECK(stats.summary().lost == 0);
  CHECK(stats.summary().acked == 1);
  CHECK(stats.summary().rtt.count() == 0);
  CHECK(ping_exit(report_of(stats)) == ExitCode::Healthy);
}

TEST_CASE("windows give losses their direction and never more than there were", "[cli]") {
  PingStats stats;
  for (std::uint64_t i = 1; i <= 10; ++i) stats.add(i <= 6 ? ok(i, 1000) : ended(i, ProbeResult::Timeout));
  stats.add(window(3, 0));
  stats.add(window(0, 1));
  auto s = stats.summary();
  CHECK(s.forward.lost == 3);
  CHECK(s.back.lost == 1);
  CHECK(s.lost_unknown == 0);
  stats.add(window(50, 50));
  s = stats.summary();
  CHECK(s.forward.lost + s.back.lost + s.lost_unknown == s.lost);
  CHECK(s.lost == 4);
}

TEST_CASE("only the first count probes of a host count, whatever order they end in", "[cli]") {
  PingStats stats(3);
  CHECK(stats.add(ok(2, 1000)));
  CHECK(stats.add(ok(3, 1000)));
  CHECK_FALSE(stats.add(ok(4, 1000)));
  CHECK_FALSE(stats.done());
  CHECK(stats.add(ended(1, ProbeResult::Timeout)));
  CHECK(stats.done());
  CHECK(stats.summary().sent == 3);
  CHECK(stats.summary().lost == 1);
}

TEST_CASE("CE, bleached bits and hops are kept for each direction", "[cli]") {
  PingStats stats;
  auto marked = ok(1, 1000);
  marked.forward_tos = 3;
  marked.back_tos = 0;
  stats.add(marked);
  stats.add(ok(2, 1000));
  const auto s = stats.summary();
  CHECK(s.forward.ce == 1);
  CHECK(s.forward.ecn_capable == 2);
  CHECK(s.back.ce == 0);
  CHECK(s.back.bleached == 1);
  CHECK(s.forward.hops == 3U);
  CHECK(ping_exit(report_of(stats)) == ExitCode::Findings);
}

TEST_CASE("bleached ECN bits cannot be measured: said in words for that way, never 0 %, and no finding", "[cli]") {
  PingStats stats;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    auto o = ok(i, 1000);
    o.forward_tos = 0;
    stats.add(o);
  }
  const std::string text = ping_report(report_of(stats), Paint(false));
  CHECK_THAT(text,
             ContainsSubstring("ECN      cannot be measured: ECN bits are cleared on the way  0 of 4 (0 %) marked"));
  CHECK(ping_exit(report_of(stats)) == ExitCode::Healthy);
  stats.add(ok(5, 1000));
  CHECK_THAT(ping_report(report_of(stats), Paint(false)), ContainsSubstring("0 of 1 (0 %) marked, some bleached"));
}

TEST_CASE("who stamped the probes is told in text and JSON: the worst that was used (perftest PR 286)", "[cli]") {
  PingStats stats;
  stats.add(ok(1, 1000));
  HostReport r = report_of(stats);
  CHECK(ping_report(r, Paint(false)).find("timestamps") == std::string::npos);
  CHECK(ping_json(r)["timestamps"].is_null());
  auto w = window(0, 0);
  w.rung = model::TimestampRung::Software;
  stats.add(w);
  w.rung = model::TimestampRung::NicTicks;
  stats.add(w);
  r = report_of(stats);
  CHECK_THAT(ping_report(r, Paint(false)), ContainsSubstring("  timestamps by weft itself (software)"));
  CHECK(ping_json(r)["timestamps"] == "software");
  r.summary.rung = model::TimestampRung::NicWallClock;
  CHECK_THAT(ping_report(r, Paint(false)), ContainsSubstring("  timestamps by the NIC's clock (nic-wall-clock)\n"));
  r.summary.rung = model::TimestampRung::NicTicks;
  CHECK_THAT(ping_report(r, Paint(false)), ContainsSubstring("  timestamps by the NIC's ticks (nic-ticks)\n"));
}

TEST_CASE("a host that was not tried has its reason and no numbers, exit 3", "[cli]") {
  HostReport r;
  r.host = "h9";
  r.tried = false;
  r.trouble = "host h9: Name or service not known";
  CHECK(ping_report(r, Paint(false)) == "h9\n  cannot measure: host h9: Name or service not known\n");
  CHECK(ping_hint(r).empty());
  CHECK(ping_exit(r) == ExitCode::CannotMeasure);
  CHECK(ping_json(r)["error"]["message"] == r.trouble);
}

TEST_CASE("large probes none of which comes back are an MTU that cannot be told, never loss", "[cli]") {
  PingStats stats;
  for (std::uint64_t i = 1; i <= 4; ++i) stats.add(ended(i, ProbeResult::Timeout));
  HostReport r = report_of(stats);
  CHECK(ping_exit(r) == ExitCode::Findings);
  r.payload_bytes = 4000;
  CHECK(ping_exit(r) == ExitCode::CannotMeasure);
  CHECK(ping_report(r, Paint(false)) ==
        "h3 (10.0.3.2) from rdma rxe0 port 1, 10.0.1.2\n"
        "  cannot measure: none of 4 probes of 4000 bytes came back, while the hello did: the MTU on the way may be "
        "smaller\n");
  CHECK_THAT(ping_hint(r), ContainsSubstring("weft ping h3"));
  CHECK_THAT(ping_json(r)["error"]["message"].get<std::string>(), ContainsSubstring("MTU"));
  stats.add(ok(5, 1000));
  r.summary = stats.summary();
  CHECK(ping_exit(r) == ExitCode::Findings);
}

TEST_CASE("an arrived hop limit above the one sent tells no hop count", "[cli]") {
  PingStats stats;
  auto odd = ok(1, 1000);
  odd.forward_hop_limit = 200;
  stats.add(odd);
  CHECK_FALSE(stats.summary().forward.hops);
}

TEST_CASE("the worst path comes first", "[cli]") {
  PingStats stats;
  stats.add(ok(1, 5'000, 49152));
  stats.add(ok(2, 9'000, 49153));
  stats.add(ended(3, ProbeResult::Timeout, 49154));
  const auto s = stats.summary();
  REQUIRE(s.ports.size() == 3);
  CHECK(s.ports[0].forward_port == 49154);
  CHECK(s.ports[1].forward_port == 49153);
}

TEST_CASE("the report of a healthy host, golden", "[cli]") {
  PingStats stats;
  for (std::uint64_t i = 1; i <= 4; ++i) stats.add(ok(i, static_cast<Nanos>(i) * 10'000));
  HostReport r = report_of(stats);
  r.path_by_port[49152] = {"l1 > s1 > l2", true};
  CHECK(ping_report(r, Paint(false)) ==
        "h3 (10.0.3.2) from rdma rxe0 port 1, 10.0.1.2\n"
        "  0 of 4 (0 %) lost\n"
        "                          min   median      p90      p99      max\n"
        "  network round trip  10.0 us  20.0 us  40.0 us  40.0 us  40.0 us\n"
        "  prober delay        12.0 us  12.0 us  12.0 us  12.0 us  12.0 us\n"
        "  responder delay     8.00 us  8.00 us  8.00 us  8.00 us  8.00 us\n"
        "           there                back\n"
        "  ECN      0 of 4 (0 %) marked  0 of 4 (0 %) marked\n"
        "  routers  3                    3\n"
        "  port 49152, way there: l1 > s1 > l2\n");
  CHECK(ping_hint(r).empty());
  CHECK(ping_exit(r) == ExitCode::Healthy);
}

TEST_CASE("a way that nobody knows is \"?\" for people and null in JSON", "[cli]") {
  PingStats stats;
  stats.add(ok(1, 10'000));
  HostReport r = report_of(stats);
  CHECK(ping_json(r)["ports"][0]["way_there"].is_null());
  r.path_by_port[49152] = {"?", false};
  CHECK_THAT(ping_report(r, Paint(false)), ContainsSubstring("way there: ?\n"));
  CHECK(ping_json(r)["ports"][0]["way_there"].is_null());
  r.path_by_port[49152] = {"l1 > ? > l2", true};
  CHECK(ping_json(r)["ports"][0]["way_there"] == "l1 > ? > l2");
}

TEST_CASE("the report of loss says where, and what to do next", "[cli]") {
  PingStats stats;
  for (std::uint64_t i = 1; i <= 8; ++i) {
    stats.add(i % 2 == 0 ? ended(i, ProbeResult::Timeout, 49153) : ok(i, 1000));
  }
  stats.add(window(4, 0, 49153));
  const HostReport r = report_of(stats);
  const std::string text = ping_report(r, Paint(false));
  CHECK_THAT(text, ContainsSubstring("4 of 8 (50 %) lost: 4 on the way there"));
  CHECK_THAT(text, ContainsSubstring("  49153          4   4 (100 %)"));
  CHECK_THAT(ping_hint(r), ContainsSubstring("weft mesh --direct --ports 16 h3"));
  CHECK(ping_exit(r) == ExitCode::Findings);
}

TEST_CASE("nobody answered: no numbers at all, what to check, exit 3 (mtr 532)", "[cli]") {
  HostReport r = report_of(PingStats());
  r.answered = false;
  r.trouble = "hello from rxe0 (10.0.1.2): nothing came back";
  const std::string text = ping_report(r, Paint(false));
  CHECK_THAT(
      text, ContainsSubstring("cannot measure: no answer to the hello: hello from rxe0 (10.0.1.2): nothing came back"));
  CHECK(text.find("0 %") == std::string::npos);
  CHECK_THAT(ping_hint(r), ContainsSubstring("weft responder"));
  CHECK(ping_exit(r) == ExitCode::CannotMeasure);
  const auto json = ping_json(r);
  CHECK(json["network_rtt_ns"].is_null());
  CHECK(json["error"]["message"] == r.trouble);
}

TEST_CASE("no probe could be sent: cannot measure, with the device's own words, and no loss", "[cli]") {
  PingStats stats;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    auto o = ended(i, ProbeResult::LocalError);
    o.error = "rxe0 port 1: cannot make an address handle from GID 10.0.1.2 (index 1) to GID 10.0.3.2";
    stats.add(o);
  }
  const HostReport r = report_of(stats);
  const std::string text = ping_report(r, Paint(false));
  CHECK_THAT(text, ContainsSubstring("cannot measure: no probe counts: rxe0 port 1: cannot make an address handle") &&
                       ContainsSubstring("4 not sent"));
  CHECK(text.find("lost") == std::string::npos);
  CHECK(ping_exit(r) == ExitCode::CannotMeasure);
  CHECK_THAT(ping_json(r)["error"]["message"].get<std::string>(), ContainsSubstring("rxe0 port 1"));
}

TEST_CASE("a responder that is gone is told beside what was lost since (perftest PR 381)", "[cli]") {
  PingStats stats;
  stats.add(ok(1, 1000));
  stats.add(ended(2, ProbeResult::Timeout));
  HostReport r = report_of(stats);
  r.trouble = "nothing listens on 10.0.3.2:47910";
  CHECK_THAT(ping_report(r, Paint(false)), ContainsSubstring("1 of 2 (50 %) lost") &&
                                               ContainsSubstring("trouble: nothing listens on 10.0.3.2:47910"));
  CHECK(ping_exit(r) == ExitCode::Findings);
}

TEST_CASE("a line a probe: numbers, loss and marks", "[cli]") {
  CHECK(outcome_line("h3", ok(7, 45'230), false, Paint(false)) == "h3 #7: 45.2 us  prober 12.0 us  responder 8.00 us");
  auto marked = ok(8, 45'230);
  marked.back_tos = 3;
  CHECK_THAT(outcome_line("h3", marked, true, Paint(false)),
             ContainsSubstring("#8 port 49152/50000: 45.2 us") && ContainsSubstring("CE back"));
  CHECK(outcome_line("h3", ended(9, ProbeResult::Timeout), false, Paint(false)) == "h3 #9: lost");
}

TEST_CASE("paths are told by the port of one way, the way back only when it is sick", "[cli]") {
  PingStats stats;
  for (std::uint64_t i = 1; i <= 8; ++i) {
    auto o = ok(i, static_cast<Nanos>(i) * 1000, static_cast<std::uint16_t>(49152 + i % 2));
    o.key.return_port = static_cast<std::uint16_t>(50000 + i / 4);
    stats.add(o);
  }
  const std::string text = ping_report(report_of(stats), Paint(false));
  CHECK_THAT(text, ContainsSubstring("  port there  sent  lost there  CE there   median  way there\n"
                                     "  49152          4           0       0 %  4.00 us  -\n"
                                     "  49153          4           0       0 %  3.00 us  -\n"));
  CHECK(text.find("port back") == std::string::npos);
  const auto merged = by_forward_port(stats.summary().ports);
  REQUIRE(merged.size() == 2);
  CHECK(merged[0].rtt.count() == 4);
  CHECK(merged[0].rtt.max() == 8000);
  auto lost = ended(9, ProbeResult::Timeout);
  lost.key.return_port = 50002;
  stats.add(lost);
  auto back = window(0, 1);
  back.key.return_port = 50002;
  stats.add(back);
  CHECK_THAT(ping_report(report_of(stats), Paint(false)), ContainsSubstring("  50002            2   1 (50 %)"));
}
