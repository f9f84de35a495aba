// A stand-in for libibverbs with one device whose every answer a test decides: what it is, what it offers, which call
// fails and how. The test program's own ibv_ functions go before the library's, so the code under test is the real one.
// One FakeVerbs at a time; build it before the device is opened. Posting is by the test's thread, address handles may
// be made by another.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace weft::test {

struct FakeCompletion {
  std::uint64_t work_id = 0;
  std::uint32_t status = IBV_WC_SUCCESS;  // a number: it may be none that verbs knows
  std::uint32_t byte_len = 0;
  std::uint32_t queue_pair = 0;
  std::uint32_t source_queue_pair = 0;
  unsigned flags = 0;
  std::uint64_t ticks = 0;    // what read_completion_ts gives
  std::uint64_t wall_ns = 0;  // what read_completion_wallclock_ns gives
};

struct PostedSend {
  std::uint32_t queue_pair = 0, remote_queue_pair = 0, remote_key = 0;
  std::uint64_t work_id = 0;
  std::size_t bytes = 0;
};

class FakeVerbs {
 public:
  // A healthy ConnectX-like RoCE port with one RoCEv2 IPv4 GID at index 1: 10.0.1.2.
  FakeVerbs();
  ~FakeVerbs();
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;

  // What the device is. To be set before it is opened.
  std::string name = "mlx5_0";
  bool present = true;  // in the list of devices
  bool iwarp = false;
  std::uint32_t vendor_id = 0x02c9;
  void make_rxe();
  ibv_port_attr port{};
  struct Gid {
    unsigned index = 0;
    std::string address;
    std::uint32_t type = IBV_GID_TYPE_ROCE_V2;
  };
  std::vector<Gid> gids;
  int max_qp_wr = 8192, max_cqe = 65536;
  // Timestamps. Without extended queues the driver has no create_cq_ex at all.
  bool extended_queues = true;
  std::uint64_t stamp_flags = 0;  // IBV_WC_EX_WITH_COMPLETION_TIMESTAMP..., those it grants
  std::uint64_t timestamp_mask = 0, core_clock_khz = 0;
  std::optional<std::uint64_t> raw_clock_ticks_a_read;  // how far its clock goes between two readings; none: unreadable

  // errno of a call by its name: "open_device", "create_qp", "modify_qp INIT", ...; 0 or absent: it works.
  std::map<std::string, int> fails;
  // It is unplugged: its node in sysfs is gone.
  void unplug();
  // A scratch folder, which is that node.
  const std::string& folder() const { return folder_; }

  // What was asked of it.
  std::vector<std::uint64_t> queue_flags_asked;  // of create_cq_ex
  unsigned classic_queues = 0, extended_queues_made = 0;
  std::vector<ibv_qp_init_attr> queue_pairs_asked;
  std::vector<ibv_ah_attr> handles_asked() const;
  std::vector<PostedSend> sent;
  unsigned polls_begun = 0, polls_ended = 0;
  // Objects that were made and not yet destroyed.
  int alive() const;

  // What it does next.
  void complete(ibv_cq* queue, FakeCompletion completion);
  void complete_all(FakeCompletion completion);  // on every queue
  bool completes_sends = true;                   // each send succeeds at once
  ibv_wc_status send_status = IBV_WC_SUCCESS;    // of those
  unsigned busy_polls = 0;                       // start_poll says EBUSY so many times
  int next_poll_error = 0;                       // what next_poll returns when there is another completion
  // A packet for the queue pair: what follows the 40 bytes of the GRH area. False when no buffer is posted.
  bool arrive(std::uint32_t queue_pair, const std::vector<std::uint8_t>& grh, const std::vector<std::uint8_t>& payload,
              ibv_wc_status status = IBV_WC_SUCCESS);
  std::size_t posted_receives(std::uint32_t queue_pair) const;
  std::vector<std::uint32_t> queue_pairs() const;
  void raise(std::uint32_t event_type);

 private:
  friend struct FakeCalls;
  struct Buffer {
    std::uint64_t work_id = 0;
    ibv_sge area{};
  };
  int failure(const std::string& call) const;

  std::string folder_;
  ibv_device device_{};
  verbs_context context_{};
  mutable std::mutex mutex_;
  int alive_ = 0;
  std::uint32_t next_queue_pair_ = 17;
  std::vector<ibv_ah_attr> handles_;
  std::map<ibv_cq*, std::deque<FakeCompletion>> completions_;
  std::set<ibv_cq*> extended_;
  std::map<std::uint32_t, ibv_qp*> pairs_;
  std::map<std::uint32_t, std::deque<Buffer>> receives_;
  std::deque<std::uint32_t> events_;
};

}  // namespace weft::test
