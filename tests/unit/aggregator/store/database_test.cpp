#include "aggregator/store/database.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "lib/wire/codec.h"
#include "tests/unit/aggregator/fakes.h"
#include "tests/unit/catch.h"

using weft::Error;
using weft::kSecond;
using weft::Nanos;
using namespace weft::aggregator;
using weft::test::expect_log;
using weft::test::TemporaryFolder;

namespace {

constexpr Nanos kNow = 1'700'000'000 * kSecond;

Database open(const std::string& path, DatabaseLimits limits = {}) {
  auto database = Database::open(path, limits, kNow);
  REQUIRE(database);
  return std::move(*database);
}

BatchRow batch(std::uint64_t sequence, std::vector<std::string> journal = {"r"}, Nanos at = kNow,
               std::uint64_t epoch = 1) {
  return {"h1", epoch, sequence, at, std::move(journal), {}};
}

weft::model::Finding finding(const std::string& id) {
  weft::model::Finding out;
  out.id = id;
  out.kind = weft::model::FindingKind::LinkLoss;
  out.severity = weft::model::Severity::Critical;
  out.subject = "link:s1>l2";
  out.since_ns = kNow - 5 * kSecond;
  out.raised_ns = kNow;
  out.last_seen_ns = kNow;
  out.confidence = 0.9;
  out.evidence = {{"lost", 12, "probes", 20}};
  out.victims = {"pair:h1>h3"};
  return out;
}

}  // namespace

TEST_CASE("database: a folder that is missing is an error, not an empty store", "[aggregator]") {
  const auto database = Database::open("/nonexistent-weft/weft.db", {}, kNow);
  REQUIRE_FALSE(database);
  CHECK_THAT(database.error().context, ContainsSubstring("/nonexistent-weft/weft.db"));
}

TEST_CASE("database: what may not be opened is refused with its reason, and stays where it is", "[aggregator]") {
  TemporaryFolder folder;
  const std::string path = folder / "weft.db";
  const auto refused = [&](const std::string& why) {
    const auto database = Database::open(path, {}, kNow);
    REQUIRE_FALSE(database);
    CHECK_THAT(database.error().message(), ContainsSubstring(path) && ContainsSubstring(why));
    CHECK(std::filesystem::exists(path));
    CHECK_FALSE(std::filesystem::exists(path + ".bad-" + std::to_string(kNow / kSecond)));
  };
  SECTION("a folder") {
    std::filesystem::create_directory(path);
    refused("is a folder");
  }
  SECTION("a pipe") {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    refused("is no file");
  }
  SECTION("a database of something else") {
    sqlite3* other = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &other) == SQLITE_OK);
    REQUIRE(sqlite3_exec(other, "CREATE TABLE photos(name TEXT)", nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(other);
    refused("of something else");
  }
  SECTION("a journal that cannot be made") {
    { open(path); }
    std::filesystem::create_directory(path + "-wal");
    std::ofstream(path + "-wal/x") << "x";
    refused("unable to open database file");
  }
}

TEST_CASE("database: garbage is moved aside with a warning and an empty store takes its place", "[aggregator]") {
  expect_log("moved aside");
  TemporaryFolder folder;
  std::ofstream(folder / "weft.db") << std::string(9000, 'x');
  Database database = open(folder / "weft.db");
  CHECK(database.started_empty_after_damage());
  CHECK(std::filesystem::exists(folder / ("weft.db.bad-" + std::to_string(kNow / kSecond))));
  CHECK(database.commit({batch(1)}, {}));
}

TEST_CASE("database: a page overwritten in the middle is found", "[aggregator]") {
  expect_log("moved aside");
  TemporaryFolder folder;
  {
    Database database = open(folder / "weft.db");
    for (std::uint64_t i = 1; i < 50; ++i) REQUIRE(database.commit({batch(i, {std::string(2000, 'r')})}, {}));
  }
  {
    std::fstream file(folder / "weft.db", std::ios::in | std::ios::out | std::ios::binary);
    for (int page = 1; page < 12; ++page) {
      file.seekp(page * 4096);
      file.write(std::string(512, '\xff').data(), 512);
    }
  }
  CHECK(open(folder / "weft.db").started_empty_after_damage());
}

TEST_CASE("database: a store of a newer weft is refused and left alone", "[aggregator]") {
  TemporaryFolder folder;
  { open(folder / "weft.db"); }
  {
    // user_version: bytes 60..63 of the file's header, big endian
    std::fstream file(folder / "weft.db", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(60);
    file.write("\0\0\0\x63", 4);
  }
  const auto database = Database::open(folder / "weft.db", {}, kNow);
  REQUIRE_FALSE(database);
  CHECK(database.error().kind == Error::Kind::Invalid);
  CHECK_THAT(database.error().context, ContainsSubstring("newer weft (schema 99"));
}

TEST_CASE("database: a second process on the same file is refused and nothing is moved", "[aggregator]") {
  TemporaryFolder folder;
  Database first = open(folder / "weft.db");
  REQUIRE(first.commit({batch(1)}, {}));
  const auto second = Database::open(folder / "weft.db", {}, kNow);
  REQUIRE_FALSE(second);
  CHECK_THAT(second.error().context,
             ContainsSubstring("store " + (folder / "weft.db")) && ContainsSubstring("in use by another process"));
}

TEST_CASE("database: what was committed is there again, in order", "[aggregator]") {
  TemporaryFolder folder;
  {
    Database database = open(folder / "weft.db");
    auto one = batch(1, {"a", std::string("b\0c", 3)});
    one.latest = {{"h1", "inventory", "i1", kNow}, {"h1", "trace x", "t1", kNow}};
    auto two = batch(2, {"d"});
    two.latest = {{"h1", "inventory", "i2", kNow}, {"h1", "trace x", std::nullopt, kNow}};
    REQUIRE(database.commit({one, two}, {finding("f1")}));
  }
  const auto recovered = open(folder / "weft.db").load(kNow + kSecond);
  REQUIRE(recovered);
  REQUIRE(recovered->agents.size() == 1);
  CHECK(recovered->agents[0].last_sequence == 2);
  REQUIRE(recovered->journal.size() == 2);
  CHECK(recovered->journal[0].records == std::vector<std::string>{"a", std::string("b\0c", 3)});
  CHECK(recovered->journal[1].records == std::vector<std::string>{"d"});
  REQUIRE(recovered->latest.size() == 1);
  CHECK(*recovered->latest[0].record == "i2");
  REQUIRE(recovered->findings.size() == 1);
  CHECK(recovered->findings[0] == finding("f1"));
}

TEST_CASE("database: a batch stored before changes nothing; another epoch starts anew", "[aggregator]") {
  TemporaryFolder folder;
  Database database = open(folder / "weft.db");
  REQUIRE(database.commit({batch(5)}, {}));
  REQUIRE(database.commit({batch(5), batch(3)}, {}));
  CHECK(database.load(kNow)->journal.size() == 1);
  REQUIRE(database.commit({batch(1, {"r"}, kNow, 2)}, {}));
  const auto recovered = database.load(kNow);
  CHECK(recovered->journal.size() == 2);
  CHECK(recovered->agents.at(0).epoch == 2);
  CHECK(recovered->agents.at(0).last_sequence == 1);
}

TEST_CASE("database: a row that is no batch leaves the progress alone", "[aggregator]") {
  TemporaryFolder folder;
  Database database = open(folder / "weft.db");
  REQUIRE(database.commit({batch(5)}, {}));
  auto note = batch(0, {});
  note.latest = {{"h1", "goodbye", "10", kNow}};
  REQUIRE(database.commit({note}, {}));
  CHECK(database.load(kNow)->agents.at(0).last_sequence == 5);
  CHECK(database.load(kNow)->latest.size() == 1);
}

TEST_CASE("database: old, future and too many rows go", "[aggregator]") {
  TemporaryFolder folder;
  DatabaseLimits limits;
  limits.journal_max_bytes = 1000;
  limits.findings_kept = 2;
  limits.latest_max_rows = 1;
  Database database = open(folder / "weft.db", limits);
  auto with_latest = batch(3, {std::string(600, 'r')});
  with_latest.latest = {{"h1", "a", "1", kNow - kSecond}, {"h1", "b", "2", kNow}};
  std::vector<weft::model::Finding> findings;
  for (int i = 0; i < 4; ++i) {
    findings.push_back(finding("f" + std::to_string(i)));
    findings.back().until_ns = kNow + i;
  }
  findings.push_back(finding("active"));
  REQUIRE(database.commit({batch(1, {"old"}, kNow - 61 * kSecond), batch(2, {std::string(600, 'r')}), with_latest,
                           batch(4, {"future"}, kNow + 3600 * kSecond)},
                          findings));
  REQUIRE(database.trim(kNow));
  const auto recovered = database.load(kNow);
  REQUIRE(recovered->journal.size() == 1);
  CHECK(recovered->latest.size() == 1);
  REQUIRE(recovered->findings.size() == 3);
  CHECK(recovered->findings[0].id == "active");
  CHECK(recovered->findings[1].id == "f3");
  CHECK(recovered->findings[2].id == "f2");
}

TEST_CASE("database: closed, it fails instead of crashing", "[aggregator]") {
  TemporaryFolder folder;
  Database database = open(folder / "weft.db");
  database.close();
  CHECK_FALSE(database.commit({batch(1)}, {}));
  CHECK_FALSE(database.trim(kNow));
  CHECK_FALSE(database.load(kNow));
  database.shrink();
}
