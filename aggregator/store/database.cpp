#include "aggregator/store/database.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "lib/base/log.h"
#include "lib/wire/codec.h"

namespace weft::aggregator {
namespace {

constexpr int kSchemaVersion = 1;

constexpr const char* kSchema = R"(
CREATE TABLE agents(agent TEXT PRIMARY KEY, epoch INTEGER NOT NULL, last_sequence INTEGER NOT NULL,
  last_seen_wall_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE latest(agent TEXT NOT NULL, key TEXT NOT NULL, record BLOB NOT NULL, received_wall_ns INTEGER NOT NULL,
  PRIMARY KEY(agent, key)) WITHOUT ROWID;
CREATE TABLE journal(id INTEGER PRIMARY KEY, agent TEXT NOT NULL, epoch INTEGER NOT NULL,
  received_wall_ns INTEGER NOT NULL, records BLOB NOT NULL);
CREATE TABLE findings(id TEXT PRIMARY KEY, raised_ns INTEGER NOT NULL, until_ns INTEGER, acknowledged INTEGER NOT NULL,
  body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX findings_by_end ON findings(until_ns, raised_ns);
)";

Error sqlite_error(sqlite3* db, int code, const std::string& what) {
  const int primary = code & 0xff;
  Error::Kind kind = Error::Kind::Transient;
  if (primary == SQLITE_FULL) kind = Error::Kind::Exhausted;
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB) kind = Error::Kind::Malformed;
  if (primary == SQLITE_CANTOPEN || primary == SQLITE_IOERR) kind = Error::Kind::Internal;
  if (primary == SQLITE_BUSY || primary == SQLITE_LOCKED) {
    return make_error(Error::Kind::Transient,
                      what + ": in use by another process: stop that one, or name another --store");
  }
  return make_error(kind, what + ": " + (db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code)));
}

struct CloseDb {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
using Handle = std::unique_ptr<sqlite3, CloseDb>;

// One prepared statement; the first error sticks and later calls do nothing.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db) { code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr); }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void bind(int at, std::int64_t value) { note(sqlite3_bind_int64(statement_, at, value)); }
  void bind_text(int at, const std::string& value) {
    note(sqlite3_bind_text64(statement_, at, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  }
  void bind_blob(int at, const std::string& value) {
    note(sqlite3_bind_blob64(statement_, at, value.data(), value.size(), SQLITE_TRANSIENT));
  }
  void bind_null(int at) { note(sqlite3_bind_null(statement_, at)); }
  // True while a row is there.
  bool step() {
    if (code_ != SQLITE_OK) return false;
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) code_ = code;
    return false;
  }
  void run() {
    step();
    // reset repeats the code of a failed step, which is already kept
    if (code_ == SQLITE_OK) sqlite3_reset(statement_);
  }
  std::int64_t integer(int at) { return sqlite3_column_int64(statement_, at); }
  bool is_null(int at) { return sqlite3_column_type(statement_, at) == SQLITE_NULL; }
  std::string bytes(int at) {
    const void* data = sqlite3_column_blob(statement_, at);
    const int size = sqlite3_column_bytes(statement_, at);
    return data == nullptr ? std::string()
                           : std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
  }
  Result<void> result(const std::string& what) const {
    if (code_ == SQLITE_OK) return {};
    return sqlite_error(db_, code_, what);
  }

 private:
  void note(int code) {
    if (code_ == SQLITE_OK) code_ = code;
  }
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

Result<void> execute(sqlite3* db, const char* sql, const std::string& what) {
  const int code = sqlite3_exec(db, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return sqlite_error(db, code, what);
  return {};
}

Result<std::int64_t> query_integer(sqlite3* db, const char* sql, const std::string& what) {
  Statement statement(db, sql);
  const bool row = statement.step();
  if (auto result = statement.result(what); !result) return result.error();
  return row ? statement.integer(0) : 0;
}

// Records of a batch in one blob: length (4 bytes, little endian), bytes, and so on.
std::string pack(const std::vector<std::string>& records) {
  std::string out;
  for (const std::string& record : records) {
    for (unsigned shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>((record.size() >> shift) & 0xff));
    out += record;
  }
  return out;
}

std::vector<std::string> unpack(const std::string& bytes) {
  std::vector<std::string> out;
  std::size_t at = 0;
  while (bytes.size() - at >= 4) {
    std::uint32_t size = 0;
    for (unsigned i = 0; i < 4; ++i) size |= std::uint32_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
    at += 4;
    if (size > bytes.size() - at) break;
    out.push_back(bytes.substr(at, size));
    at += size;
  }
  return out;
}

// SQLite says no more than that it cannot open the file.
Result<void> can_open(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) {
      return make_error(Error::Kind::Invalid,
                        "store " + path + " is a folder: name a file in it, " + path + "/weft.db");
    }
    if (!S_ISREG(info.st_mode)) return make_error(Error::Kind::Invalid, "store " + path + " is no file");
    if (::access(path.c_str(), R_OK | W_OK) != 0) {
      return errno_error(errno, "store " + path + " cannot be read and written by this user");
    }
    return {};
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0) {
    return errno_error(errno, "store " + path + " cannot be made: the folder must exist and be writable");
  }
  return {};
}

Result<Handle> open_checked(const std::string& path) {
  if (auto able = can_open(path); !able) return able.error();
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  Handle db(raw);
  if (code != SQLITE_OK) return sqlite_error(raw, code, "store " + path);
  sqlite3_busy_timeout(raw, 1000);
  // EXCLUSIVE: two aggregators on one store would acknowledge for each other.
  // FULL: an acknowledgement must survive a power cut, not only a crash of this process.
  if (auto result = execute(raw,
                            "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA "
                            "journal_size_limit=4194304;"
                            "PRAGMA trusted_schema=OFF;",
                            "store " + path);
      !result) {
    return result.error();
  }
  Statement check(raw, "PRAGMA quick_check(1)");
  const bool row = check.step();
  if (auto result = check.result("store " + path + ": check"); !result) return result.error();
  if (!row || check.bytes(0) != "ok") return make_error(Error::Kind::Malformed, "store " + path + ": damaged");
  return db;
}

// A file that has our version number but not our tables is damage as well.
Result<void> prepare_schema(sqlite3* db, const std::string& path) {
  const auto version = query_integer(db, "PRAGMA user_version", "store " + path);
  if (!version) return version.error();
  const auto tables = query_integer(db, "SELECT count(*) FROM sqlite_master WHERE type='table'", "store " + path);
  if (!tables) return tables.error();
  if (*version > kSchemaVersion) {
    return make_error(Error::Kind::Invalid, "store " + path + " was written by a newer weft (schema " +
                                                std::to_string(*version) + ", this one knows " +
                                                std::to_string(kSchemaVersion) + "): use that one, or another --store");
  }
  if (*version == 0 && *tables == 0) {
    const std::string sql = std::string("BEGIN IMMEDIATE;") + kSchema +
                            "PRAGMA user_version=" + std::to_string(kSchemaVersion) + ";COMMIT;";
    return execute(db, sql.c_str(), "store " + path);
  }
  if (*version == 0) {
    return make_error(Error::Kind::Invalid, "store " + path + " is a database of something else: name another --store");
  }
  if (*tables < 4) return make_error(Error::Kind::Malformed, "store " + path + ": not a weft store");
  return {};
}

}  // namespace

struct Database::Impl {
  std::string path;
  DatabaseLimits limits;
  Handle db;
  bool damaged = false;

  Result<void> write_batches(const std::vector<BatchRow>& batches);
  Result<void> write_findings(const std::vector<model::Finding>& findings);
};

Database::Database(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;
Database::~Database() = default;

Result<Database> Database::open(const std::string& path, DatabaseLimits limits, Nanos wall_now) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->limits = limits;
  for (const bool again : {false, true}) {
    Result<Handle> db = open_checked(path);
    Result<void> ready;
    if (db) ready = prepare_schema(db->get(), path);
    if (db && ready) {
      impl->db = std::move(*db);
      impl->damaged = again;
      return Database(std::move(impl));
    }
    const Error error = db ? ready.error() : db.error();
    // Only what was read and is no store: a file that may not be opened or read may be a good one.
    if (again || error.kind != Error::Kind::Malformed) return error;
    if (db) db->reset();
    const std::string aside = path + ".bad-" + std::to_string(wall_now / kSecond);
    if (std::rename(path.c_str(), aside.c_str()) != 0) return errno_error(errno, "moving aside " + path);
    for (const char* suffix : {"-wal", "-shm"}) {
      std::rename((path + suffix).c_str(), (aside + suffix).c_str());
    }
    log::warning("store", "database unreadable: moved aside, starting empty",
                 {{"moved_to", aside}, {"why", error.message()}});
  }
  return make_error(Error::Kind::Internal, "store " + path);
}

Result<void> Database::Impl::write_batches(const std::vector<BatchRow>& batches) {
  // A batch older than what is stored changes nothing, whatever the callers believe.
  Statement agent(db.get(),
                  "INSERT INTO agents(agent, epoch, last_sequence, last_seen_wall_ns) VALUES(?1, ?2, ?3, ?4) "
                  "ON CONFLICT(agent) DO UPDATE SET epoch=?2, last_sequence=?3, last_seen_wall_ns=?4 "
                  "WHERE epoch<>?2 OR last_sequence<?3");
  Statement journal(db.get(), "INSERT INTO journal(agent, epoch, received_wall_ns, records) VALUES(?1, ?2, ?3, ?4)");
  Statement latest(db.get(), "INSERT OR REPLACE INTO latest(agent, key, record, received_wall_ns) VALUES(?1,?2,?3,?4)");
  Statement forget(db.get(), "DELETE FROM latest WHERE agent=?1 AND key=?2");
  for (const BatchRow& batch : batches) {
    if (batch.sequence != 0) {
      agent.bind_text(1, batch.agent);
      agent.bind(2, static_cast<std::int64_t>(batch.epoch));
      agent.bind(3, static_cast<std::int64_t>(batch.sequence));
      agent.bind(4, batch.received_wall_ns);
      agent.run();
      if (auto result = agent.result("store agents"); !result) return result;
      if (sqlite3_changes(db.get()) == 0) continue;
    }
    if (!batch.journal.empty()) {
      journal.bind_text(1, batch.agent);
      journal.bind(2, static_cast<std::int64_t>(batch.epoch));
      journal.bind(3, batch.received_wall_ns);
      journal.bind_blob(4, pack(batch.journal));
      journal.run();
      if (auto result = journal.result("store journal"); !result) return result;
    }
    for (const LatestRow& row : batch.latest) {
      Statement& statement = row.record ? latest : forget;
      statement.bind_text(1, batch.agent);
      statement.bind_text(2, row.key);
      if (row.record) {
        statement.bind_blob(3, *row.record);
        statement.bind(4, row.received_wall_ns);
      }
      statement.run();
      if (auto result = statement.result("store latest"); !result) return result;
    }
  }
  return {};
}

Result<void> Database::Impl::write_findings(const std::vector<model::Finding>& findings) {
  Statement statement(db.get(),
                      "INSERT OR REPLACE INTO findings(id, raised_ns, until_ns, acknowledged, body) "
                      "VALUES(?1, ?2, ?3, ?4, ?5)");
  for (const model::Finding& finding : findings) {
    statement.bind_text(1, finding.id);
    statement.bind(2, finding.raised_ns);
    finding.until_ns ? statement.bind(3, *finding.until_ns) : statement.bind_null(3);
    statement.bind(4, finding.acknowledged ? 1 : 0);
    statement.bind_blob(5, wire::encode_record(finding));
    statement.run();
    if (auto result = statement.result("store findings"); !result) return result;
  }
  return {};
}

Result<void> Database::commit(const std::vector<BatchRow>& batches, const std::vector<model::Finding>& findings) {
  if (closed()) return make_error(Error::Kind::Internal, "store " + impl_->path + ": not open");
  sqlite3* db = impl_->db.get();
  const std::string what = "store " + impl_->path;
  Result<void> result = execute(db, "BEGIN IMMEDIATE", what);
  if (result) result = impl_->write_batches(batches);
  if (result) result = impl_->write_findings(findings);
  if (result) result = execute(db, "COMMIT", what);
  // A failed COMMIT may leave the transaction open, and a full disk may have closed it already.
  if (!result && sqlite3_get_autocommit(db) == 0) sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
  return result;
}

Result<void> Database::trim(Nanos wall_now) {
  if (closed()) return make_error(Error::Kind::Internal, "store " + impl_->path + ": not open");
  sqlite3* db = impl_->db.get();
  const DatabaseLimits& limits = impl_->limits;
  const auto drop = [&](const char* sql, std::int64_t first, std::int64_t second) {
    Statement statement(db, sql);
    statement.bind(1, first);
    statement.bind(2, second);
    statement.run();
    return statement.result("store trim");
  };
  // Rows from the future come from a wall clock that was stepped back since.
  if (auto result = drop("DELETE FROM journal WHERE received_wall_ns NOT BETWEEN ?1 AND ?2",
                         wall_now - limits.journal_retention_ns, wall_now + limits.journal_retention_ns);
      !result) {
    return result;
  }
  if (auto result = drop("DELETE FROM journal WHERE id IN (SELECT id FROM (SELECT id, sum(length(records)) OVER "
                         "(ORDER BY id DESC) AS bytes FROM journal) WHERE bytes > ?1 + 0*?2)",
                         static_cast<std::int64_t>(limits.journal_max_bytes), 0);
      !result) {
    return result;
  }
  if (auto result = drop("DELETE FROM latest WHERE received_wall_ns NOT BETWEEN ?1 AND ?2",
                         wall_now - limits.latest_retention_ns, wall_now + limits.latest_retention_ns);
      !result) {
    return result;
  }
  if (auto result = drop("DELETE FROM agents WHERE last_seen_wall_ns NOT BETWEEN ?1 AND ?2",
                         wall_now - limits.latest_retention_ns, wall_now + limits.latest_retention_ns);
      !result) {
    return result;
  }
  if (auto result = drop("DELETE FROM latest WHERE (agent, key) IN (SELECT agent, key FROM latest "
                         "ORDER BY received_wall_ns DESC LIMIT -1 OFFSET ?1 + 0*?2)",
                         static_cast<std::int64_t>(limits.latest_max_rows), 0);
      !result) {
    return result;
  }
  return drop(
      "DELETE FROM findings WHERE until_ns IS NOT NULL AND id NOT IN (SELECT id FROM findings "
      "WHERE until_ns IS NOT NULL ORDER BY until_ns DESC, raised_ns DESC LIMIT ?1 + 0*?2)",
      static_cast<std::int64_t>(limits.findings_kept), 0);
}

Result<Recovered> Database::load(Nanos wall_now) {
  if (closed()) return make_error(Error::Kind::Internal, "store " + impl_->path + ": not open");
  sqlite3* db = impl_->db.get();
  const DatabaseLimits& limits = impl_->limits;
  Recovered out;
  Statement agents(db, "SELECT agent, epoch, last_sequence, last_seen_wall_ns FROM agents");
  while (agents.step()) {
    out.agents.push_back({agents.bytes(0), static_cast<std::uint64_t>(agents.integer(1)),
                          static_cast<std::uint64_t>(agents.integer(2)), agents.integer(3)});
  }
  if (auto result = agents.result("store agents"); !result) return result.error();

  Statement latest(db, "SELECT agent, key, record, received_wall_ns FROM latest ORDER BY received_wall_ns");
  while (latest.step()) out.latest.push_back({latest.bytes(0), latest.bytes(1), latest.bytes(2), latest.integer(3)});
  if (auto result = latest.result("store latest"); !result) return result.error();

  Statement journal(db,
                    "SELECT agent, epoch, received_wall_ns, records FROM journal WHERE received_wall_ns "
                    "BETWEEN ?1 AND ?2 ORDER BY id");
  journal.bind(1, wall_now - limits.journal_retention_ns);
  journal.bind(2, wall_now);
  while (journal.step()) {
    out.journal.push_back({journal.bytes(0), static_cast<std::uint64_t>(journal.integer(1)), journal.integer(2),
                           unpack(journal.bytes(3))});
  }
  if (auto result = journal.result("store journal"); !result) return result.error();

  Statement findings(db,
                     "SELECT id, acknowledged, body FROM findings "
                     "ORDER BY until_ns IS NOT NULL, until_ns DESC, raised_ns DESC LIMIT ?1");
  findings.bind(1, static_cast<std::int64_t>(limits.findings_loaded));
  while (findings.step()) {
    Result<model::Finding> finding = wire::decode_stored_finding(findings.bytes(2));
    if (!finding) {
      log::warning("store", "a stored finding cannot be read", {{"id", findings.bytes(0)}});
      continue;
    }
    finding->id = findings.bytes(0);
    finding->acknowledged = findings.integer(1) != 0;
    out.findings.push_back(std::move(*finding));
  }
  if (auto result = findings.result("store findings"); !result) return result.error();
  return out;
}

void Database::shrink() {
  if (!closed()) {
    sqlite3_wal_checkpoint_v2(impl_->db.get(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  }
}

void Database::close() { impl_->db.reset(); }
bool Database::closed() const { return impl_->db == nullptr; }

std::uint64_t Database::size_bytes() const {
  std::uint64_t sum = 0;
  for (const char* suffix : {"", "-wal"}) {
    struct stat info {};
    if (::stat((impl_->path + suffix).c_str(), &info) == 0) sum += static_cast<std::uint64_t>(info.st_size);
  }
  return sum;
}

bool Database::started_empty_after_damage() const { return impl_->damaged; }
const std::string& Database::path() const { return impl_->path; }

}  // namespace weft::aggregator
