#include "aggregator/export/leaf_mesh.h"

#include "tests/unit/catch.h"

using namespace weft;
using namespace weft::aggregator;

namespace {

localise::MeshCell cell(const std::string& from, const std::string& from_leaf, const std::string& to,
                        const std::string& to_leaf, std::optional<Nanos> rtt = std::nullopt) {
  localise::MeshCell out;
  out.from = from;
  out.from_leaf = from_leaf;
  out.to = to;
  out.to_leaf = to_leaf;
  out.sent = 100;
  out.lost = 1;
  out.ecn_capable = 50;
  out.ce = 5;
  out.rtt_median_ns = rtt;
  return out;
}

}  // namespace

TEST_CASE("leaf mesh: nothing known is nothing, and a port without a leaf is in the row unknown", "[aggregator]") {
  CHECK(leaf_mesh({}).cells.empty());
  const LeafMesh mesh = leaf_mesh({cell("h1/rxe0", "", "h3/rxe0", "l2")});
  REQUIRE(mesh.cells.size() == 1);
  CHECK(mesh.cells[0].from == kUnknownLeaf);
  CHECK(mesh.cells[0].to == "l2");
  CHECK_FALSE(mesh.cells[0].rtt_median_ns.has_value());
}

TEST_CASE("leaf mesh: pairs of ports that were not asked for are neither counted nor named", "[aggregator]") {
  const LeafMesh mesh =
      leaf_mesh({cell("h1/rxe0", "l1", "h3/rxe0", "l2"), cell("h5/rxe0", "l3", "h3/rxe0", "l2"),
                 cell("h2/rxe0", "l1", "h3/rxe0", "l2")},
                [](const localise::MeshCell& one) { return one.from != "h1/rxe0" && one.from_leaf == "l1"; });
  REQUIRE(mesh.cells.size() == 1);
  CHECK(mesh.cells[0].sent == 100);
  CHECK(mesh.leaf_of == std::map<std::string, std::string>{{"h2/rxe0", "l1"}, {"h3/rxe0", "l2"}});
}

TEST_CASE("leaf mesh: pairs of ports between the same leaves are one cell, each way apart", "[aggregator]") {
  const LeafMesh mesh = leaf_mesh({
      cell("h1/rxe0", "l1", "h3/rxe0", "l2", 1 * kMillisecond),
      cell("h2/rxe0", "l1", "h3/rxe0", "l2", 50 * kMillisecond),
      cell("h1/rxe0", "l1", "h4/rxe0", "l2", 2 * kMillisecond),
      cell("h3/rxe0", "l2", "h1/rxe0", "l1", 3 * kMillisecond),
  });
  REQUIRE(mesh.cells.size() == 2);
  const LeafCell& there = mesh.cells[0];
  CHECK(there.from == "l1");
  CHECK(there.to == "l2");
  CHECK(there.sent == 300);
  CHECK(there.lost == 3);
  CHECK(there.ecn_capable == 150);
  CHECK(there.ce == 15);
  CHECK(there.rtt_median_ns == 2 * kMillisecond);
  CHECK(mesh.cells[1].sent == 100);
  CHECK(mesh.leaf_of.at("h4/rxe0") == "l2");
}

TEST_CASE("leaf mesh: more leaves than rows fold into other, those with most ports stay (podtrace PR 329)",
          "[aggregator]") {
  std::vector<localise::MeshCell> ports;
  const auto big = [](unsigned leaf) { return "b" + std::to_string(leaf); };
  for (unsigned i = 0; i < kMaxLeaves; ++i) {
    ports.push_back(cell("x" + std::to_string(i) + "/a", big(i), "y" + std::to_string(i) + "/a", big(i)));
  }
  for (unsigned i = 0; i < 500; ++i)
    ports.push_back(cell("z" + std::to_string(i) + "/a", "a" + std::to_string(i), "x0/a", big(0)));
  const LeafMesh mesh = leaf_mesh(ports);
  CHECK(mesh.cells.size() == kMaxLeaves + 1);
  std::uint64_t sent = 0;
  for (const LeafCell& one : mesh.cells) sent += one.sent;
  CHECK(sent == 100 * ports.size());
  CHECK(mesh.leaf_of.at("x63/a") == "b63");
  CHECK(mesh.leaf_of.at("z7/a") == kOtherLeaf);
}
