#include "tests/unit/lib/rdma/fake_verbs.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lib/model/device.h"
#include "tests/unit/catch.h"

namespace weft::test {
namespace {

FakeVerbs* g_fake = nullptr;

FakeVerbs& fake() {
  if (g_fake == nullptr) std::abort();  // also called by threads that may not assert
  return *g_fake;
}

// A driver may answer with any number; as an enum it would be undefined to handle one that verbs does not know.
template <typename Enum>
void put_enum(Enum& field, std::uint32_t number) {
  static_assert(sizeof field == sizeof number);
  std::memcpy(&field, &number, sizeof number);
}

struct ExtendedQueue {
  ibv_cq_ex queue{};
  FakeCompletion current;
};

}  // namespace

// The calls themselves; C functions below hand over to them.
struct FakeCalls {
  template <typename T>
  static T* make(const char* call) {
    if (const int error = fake().failure(call); error != 0) {
      errno = error;
      return nullptr;
    }
    std::lock_guard lock(fake().mutex_);
    ++fake().alive_;
    return new T{};
  }
  template <typename T>
  static int drop(T* object) {
    std::lock_guard lock(fake().mutex_);
    --fake().alive_;
    delete object;
    return 0;
  }

  static int query_device(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* out, std::size_t) {
    if (const int error = fake().failure("query_device"); error != 0) return error;
    *out = {};
    out->orig_attr.vendor_id = fake().vendor_id;
    out->orig_attr.phys_port_cnt = 1;
    out->orig_attr.max_qp_wr = fake().max_qp_wr;
    out->orig_attr.max_cqe = fake().max_cqe;
    out->completion_timestamp_mask = fake().timestamp_mask;
    out->hca_core_clock = fake().core_clock_khz;
    return 0;
  }

  static int query_port(ibv_context*, std::uint8_t, ibv_port_attr* out, std::size_t) {
    if (const int error = fake().failure("query_port"); error != 0) return error;
    *out = fake().port;
    return 0;
  }

  static int query_gid(std::uint32_t index, ibv_gid_entry* out) {
    if (const int error = fake().failure("query_gid " + std::to_string(index)); error != 0) return error;
    for (const FakeVerbs::Gid& gid : fake().gids) {
      if (gid.index != index) continue;
      const auto raw = model::Gid::parse(gid.address);
      REQUIRE(raw);
      std::copy(raw->raw.begin(), raw->raw.end(), out->gid.raw);
      out->gid_index = index;
      out->gid_type = gid.type;
      out->ndev_ifindex = 0;
      return 0;
    }
    return ENODATA;
  }

  static int query_clock(ibv_context*, ibv_values_ex* values) {
    if (!fake().raw_clock_ticks_a_read) return EOPNOTSUPP;
    static long ticks = 0;
    ticks += static_cast<long>(*fake().raw_clock_ticks_a_read);
    values->raw_clock = {0, ticks};
    return 0;
  }

  static ibv_cq* create_queue(ibv_comp_channel* channel, int entries) {
    auto* queue = make<ibv_cq>("create_cq");
    if (queue == nullptr) return nullptr;
    queue->context = &fake().context_.context;
    queue->channel = channel;
    queue->cqe = entries;
    ++fake().classic_queues;
    std::lock_guard lock(fake().mutex_);
    fake().completions_[queue];
    return queue;
  }

  static ibv_cq_ex* create_extended(ibv_context* context, ibv_cq_init_attr_ex* wanted) {
    fake().queue_flags_asked.push_back(wanted->wc_flags);
    constexpr std::uint64_t kStamps =
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    if ((wanted->wc_flags & kStamps & ~fake().stamp_flags) != 0) {
      errno = EOPNOTSUPP;
      return nullptr;
    }
    auto* made = make<ExtendedQueue>("create_cq_ex");
    if (made == nullptr) return nullptr;
    ibv_cq_ex& queue = made->queue;
    queue.context = context;
    queue.channel = wanted->channel;
    queue.start_poll = [](ibv_cq_ex* of, ibv_poll_cq_attr*) {
      if (fake().busy_polls > 0) {
        --fake().busy_polls;
        return EBUSY;
      }
      if (!take(of)) return ENOENT;
      ++fake().polls_begun;
      return 0;
    };
    queue.next_poll = [](ibv_cq_ex* of) {
      if (fake().next_poll_error != 0) return fake().next_poll_error;
      return take(of) ? 0 : ENOENT;
    };
    queue.end_poll = [](ibv_cq_ex*) { ++fake().polls_ended; };
    queue.read_byte_len = [](ibv_cq_ex* of) { return current(of).byte_len; };
    queue.read_qp_num = [](ibv_cq_ex* of) { return current(of).queue_pair; };
    queue.read_src_qp = [](ibv_cq_ex* of) { return current(of).source_queue_pair; };
    queue.read_wc_flags = [](ibv_cq_ex* of) { return current(of).flags; };
    queue.read_completion_ts = [](ibv_cq_ex* of) { return current(of).ticks; };
    queue.read_completion_wallclock_ns = [](ibv_cq_ex* of) { return current(of).wall_ns; };
    ++fake().extended_queues_made;
    std::lock_guard lock(fake().mutex_);
    fake().completions_[ibv_cq_ex_to_cq(&queue)];
    fake().extended_.insert(ibv_cq_ex_to_cq(&queue));
    return &queue;
  }
  static FakeCompletion& current(ibv_cq_ex* queue) { return reinterpret_cast<ExtendedQueue*>(queue)->current; }
  static bool take(ibv_cq_ex* queue) {
    std::lock_guard lock(fake().mutex_);
    auto& waiting = fake().completions_[ibv_cq_ex_to_cq(queue)];
    if (waiting.empty()) return false;
    current(queue) = waiting.front();
    queue->wr_id = waiting.front().work_id;
    put_enum(queue->status, waiting.front().status);
    waiting.pop_front();
    return true;
  }

  static int destroy_queue(ibv_cq* queue) {
    bool extended = false;
    {
      std::lock_guard lock(fake().mutex_);
      fake().completions_.erase(queue);
      extended = fake().extended_.erase(queue) > 0;
    }
    return extended ? drop(reinterpret_cast<ExtendedQueue*>(queue)) : drop(queue);
  }

  static int poll(ibv_cq* queue, int most, ibv_wc* out) {
    if (fake().failure("poll_cq") != 0) return -1;
    std::lock_guard lock(fake().mutex_);
    auto& waiting = fake().completions_[queue];
    int count = 0;
    for (; count < most && !waiting.empty(); ++count, waiting.pop_front()) {
      const FakeCompletion& from = waiting.front();
      out[count] = {};
      out[count].wr_id = from.work_id;
      put_enum(out[count].status, from.status);
      out[count].byte_len = from.byte_len;
      out[count].qp_num = from.queue_pair;
      out[count].src_qp = from.source_queue_pair;
      out[count].wc_flags = from.flags;
    }
    return count;
  }

  static ibv_qp* create_pair(ibv_qp_init_attr* wanted) {
    fake().queue_pairs_asked.push_back(*wanted);
    auto* pair = make<ibv_qp>("create_qp");
    if (pair == nullptr) return nullptr;
    pair->context = &fake().context_.context;
    pair->send_cq = wanted->send_cq;
    pair->recv_cq = wanted->recv_cq;
    pair->qp_num = fake().next_queue_pair_++;
    fake().pairs_[pair->qp_num] = pair;
    return pair;
  }

  static int modify(ibv_qp* pair, const ibv_qp_attr* to) {
    static const std::map<ibv_qp_state, std::string> kNames{
        {IBV_QPS_RESET, "RESET"}, {IBV_QPS_INIT, "INIT"}, {IBV_QPS_RTR, "RTR"}, {IBV_QPS_RTS, "RTS"}};
    if (const int error = fake().failure("modify_qp " + kNames.at(to->qp_state)); error != 0) return error;
    if (to->qp_state == IBV_QPS_RESET) fake().receives_[pair->qp_num].clear();
    return 0;
  }

  static int destroy_pair(ibv_qp* pair) {
    fake().pairs_.erase(pair->qp_num);
    return drop(pair);
  }

  static int post_send(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr**) {
    if (const int error = fake().failure("post_send"); error != 0) return error;
    fake().sent.push_back(
        {pair->qp_num, work->wr.ud.remote_qpn, work->wr.ud.remote_qkey, work->wr_id, work->sg_list[0].length});
    if (!fake().completes_sends) return 0;
    FakeCompletion done;
    done.work_id = work->wr_id;
    done.status = fake().send_status;
    done.queue_pair = pair->qp_num;
    fake().complete(pair->send_cq, done);
    return 0;
  }

  static int post_receive(ibv_qp* pair, ibv_recv_wr* work, ibv_recv_wr**) {
    if (const int error = fake().failure("post_recv"); error != 0) return error;
    fake().receives_[pair->qp_num].push_back({work->wr_id, work->sg_list[0]});
    return 0;
  }

  static ibv_ah* create_handle(const ibv_ah_attr& wanted) {
    {
      std::lock_guard lock(fake().mutex_);
      fake().handles_.push_back(wanted);
    }
    return make<ibv_ah>("create_ah");
  }

  static ibv_device* device() {
    ibv_device& it = fake().device_;
    it.node_type = fake().iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
    it.transport_type = fake().iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    const auto write = [](char* to, std::size_t room, const std::string& text) {
      REQUIRE(text.size() < room);
      std::strcpy(to, text.c_str());
    };
    write(it.name, sizeof it.name, fake().name);
    write(it.dev_name, sizeof it.dev_name, "uverbs0");
    write(it.dev_path, sizeof it.dev_path, fake().folder_);
    write(it.ibdev_path, sizeof it.ibdev_path, fake().folder_);
    return &it;
  }
  static ibv_context* open() {
    if (const int error = fake().failure("open_device"); error != 0) {
      errno = error;
      return nullptr;
    }
    if (!fake().extended_queues) fake().context_.create_cq_ex = nullptr;
    std::lock_guard lock(fake().mutex_);
    ++fake().alive_;
    return &fake().context_.context;
  }
  static int close() {
    std::lock_guard lock(fake().mutex_);
    --fake().alive_;
    return 0;
  }
  static bool next_event(ibv_async_event* out) {
    std::lock_guard lock(fake().mutex_);
    if (fake().events_.empty()) return false;
    *out = {};
    put_enum(out->event_type, fake().events_.front());
    fake().events_.pop_front();
    return true;
  }
};

FakeVerbs::FakeVerbs() {
  REQUIRE(g_fake == nullptr);
  g_fake = this;
  std::string pattern = std::filesystem::temp_directory_path() / "weft-verbs-XXXXXX";
  REQUIRE(::mkdtemp(pattern.data()) != nullptr);
  folder_ = pattern;
  port.state = IBV_PORT_ACTIVE;
  port.active_mtu = port.max_mtu = IBV_MTU_4096;
  port.gid_tbl_len = 8;
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  gids = {{1, "10.0.1.2"}};
  context_.sz = sizeof context_;
  context_.query_port = FakeCalls::query_port;
  context_.query_device_ex = FakeCalls::query_device;
  context_.query_rt_values = FakeCalls::query_clock;
  context_.create_cq_ex = FakeCalls::create_extended;
  ibv_context& context = context_.context;
  context.device = &device_;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.async_fd = ::eventfd(0, EFD_CLOEXEC);
  context.ops.poll_cq = FakeCalls::poll;
  context.ops.req_notify_cq = [](ibv_cq*, int) { return fake().failure("req_notify_cq"); };
  context.ops.post_send = FakeCalls::post_send;
  context.ops.post_recv = FakeCalls::post_receive;
}

FakeVerbs::~FakeVerbs() {
  ::close(context_.context.async_fd);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  g_fake = nullptr;
}

void FakeVerbs::make_rxe() {
  name = "rxe0";
  vendor_id = 0xFFFFFF;
  std::ofstream(folder_ + "/parent") << "eth0\n";
  port.active_mtu = IBV_MTU_1024;
}

void FakeVerbs::unplug() { std::filesystem::remove_all(folder_); }

int FakeVerbs::failure(const std::string& call) const {
  const auto found = fails.find(call);
  return found == fails.end() ? 0 : found->second;
}

std::vector<ibv_ah_attr> FakeVerbs::handles_asked() const {
  std::lock_guard lock(mutex_);
  return handles_;
}

int FakeVerbs::alive() const {
  std::lock_guard lock(mutex_);
  return alive_;
}

void FakeVerbs::complete(ibv_cq* queue, FakeCompletion completion) {
  std::lock_guard lock(mutex_);
  completions_.at(queue).push_back(completion);
}

void FakeVerbs::complete_all(FakeCompletion completion) {
  std::lock_guard lock(mutex_);
  for (auto& [queue, waiting] : completions_) waiting.push_back(completion);
}

bool FakeVerbs::arrive(std::uint32_t queue_pair, const std::vector<std::uint8_t>& grh,
                       const std::vector<std::uint8_t>& payload, ibv_wc_status status) {
  auto& posted = receives_[queue_pair];
  if (posted.empty()) return false;
  const Buffer buffer = posted.front();
  posted.pop_front();
  auto* to = reinterpret_cast<std::uint8_t*>(buffer.area.addr);
  REQUIRE(grh.size() + payload.size() <= buffer.area.length);
  std::copy(grh.begin(), grh.end(), to);
  std::copy(payload.begin(), payload.end(), to + grh.size());
  FakeCompletion done;
  done.work_id = buffer.work_id;
  done.status = status;
  done.byte_len = static_cast<std::uint32_t>(grh.size() + payload.size());
  done.queue_pair = queue_pair;
  done.flags = IBV_WC_GRH;
  complete(pairs_.at(queue_pair)->recv_cq, done);
  return true;
}

std::size_t FakeVerbs::posted_receives(std::uint32_t queue_pair) const {
  const auto found = receives_.find(queue_pair);
  return found == receives_.end() ? 0 : found->second.size();
}

std::vector<std::uint32_t> FakeVerbs::queue_pairs() const {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, pair] : pairs_) numbers.push_back(number);
  return numbers;
}

void FakeVerbs::raise(std::uint32_t event_type) {
  std::lock_guard lock(mutex_);
  events_.push_back(event_type);
}

}  // namespace weft::test

using weft::test::fake;
using weft::test::FakeCalls;

// Parentheses keep the header's macros of the same names away.
extern "C" {

ibv_device**(ibv_get_device_list)(int* count) {
  auto** list = new ibv_device* [2] { nullptr, nullptr };
  weft::test::FakeVerbs& it = fake();
  *count = it.present ? 1 : 0;
  if (it.present) list[0] = FakeCalls::device();
  return list;
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device*) { return FakeCalls::open(); }
int ibv_close_device(ibv_context*) { return FakeCalls::close(); }
ibv_pd* ibv_alloc_pd(ibv_context*) { return FakeCalls::make<ibv_pd>("alloc_pd"); }
int ibv_dealloc_pd(ibv_pd* domain) { return FakeCalls::drop(domain); }
int _ibv_query_gid_ex(ibv_context*, std::uint32_t, std::uint32_t index, ibv_gid_entry* entry, std::uint32_t,
                      std::size_t) {
  return FakeCalls::query_gid(index, entry);
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context*) {
  auto* channel = FakeCalls::make<ibv_comp_channel>("create_comp_channel");
  if (channel != nullptr) channel->fd = ::eventfd(0, EFD_CLOEXEC);
  return channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  ::close(channel->fd);
  return FakeCalls::drop(channel);
}
int ibv_get_cq_event(ibv_comp_channel*, ibv_cq**, void**) {
  errno = EAGAIN;
  return -1;
}
void ibv_ack_cq_events(ibv_cq*, unsigned) {}
ibv_cq* ibv_create_cq(ibv_context*, int entries, void*, ibv_comp_channel* channel, int) {
  return FakeCalls::create_queue(channel, entries);
}
int ibv_destroy_cq(ibv_cq* queue) { return FakeCalls::destroy_queue(queue); }

ibv_qp* ibv_create_qp(ibv_pd*, ibv_qp_init_attr* wanted) { return FakeCalls::create_pair(wanted); }
int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* to, int) { return FakeCalls::modify(pair, to); }
int ibv_destroy_qp(ibv_qp* pair) { return FakeCalls::destroy_pair(pair); }

ibv_mr*(ibv_reg_mr)(ibv_pd*, void*, std::size_t, int) { return FakeCalls::make<ibv_mr>("reg_mr"); }
int ibv_dereg_mr(ibv_mr* region) { return FakeCalls::drop(region); }

ibv_ah* ibv_create_ah(ibv_pd*, ibv_ah_attr* wanted) { return FakeCalls::create_handle(*wanted); }
int ibv_destroy_ah(ibv_ah* handle) { return FakeCalls::drop(handle); }

int ibv_get_async_event(ibv_context*, ibv_async_event* event) { return FakeCalls::next_event(event) ? 0 : -1; }
void ibv_ack_async_event(ibv_async_event*) {}
}
