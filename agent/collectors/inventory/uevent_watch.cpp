#include "agent/collectors/inventory/uevent_watch.h"

#include "lib/model/subject.h"

namespace weft::inventory {
namespace {

constexpr std::size_t kMaxBytes = 8 * 1024;  // the kernel's own limit is 2 KiB of variables (UEVENT_BUFFER_SIZE)
constexpr std::size_t kMaxEvents = 256;
constexpr std::size_t kMaxNodes = 1024;

std::optional<UeventAction> action_of(std::string_view text) {
  if (text == "add") return UeventAction::Add;
  if (text == "remove") return UeventAction::Remove;
  if (text == "change") return UeventAction::Change;
  if (text == "move") return UeventAction::Move;
  return std::nullopt;
}

std::optional<UeventSubsystem> subsystem_of(std::string_view text) {
  if (text == "infiniband") return UeventSubsystem::InfiniBand;
  if (text == "infiniband_verbs") return UeventSubsystem::InfiniBandVerbs;
  if (text == "net") return UeventSubsystem::Net;
  return std::nullopt;
}

}  // namespace

Result<Uevent> parse_uevent(std::string_view bytes) {
  bytes = bytes.substr(0, kMaxBytes);
  const Error malformed = make_error(Error::Kind::Malformed, "not a uevent");
  const auto end = bytes.find('\0');
  const std::string_view head = bytes.substr(0, end);
  const auto at = head.find('@');
  if (end == std::string_view::npos || at == std::string_view::npos || at + 1 >= head.size() || head[at + 1] != '/')
    return malformed;
  const std::string_view path = head.substr(at + 1);
  const std::string_view name = path.substr(path.find_last_of('/') + 1);
  if (!model::valid_name(name)) return malformed;

  std::string_view subsystem;
  for (std::string_view rest = bytes.substr(end + 1); !rest.empty();) {
    const auto next = rest.find('\0');
    const std::string_view field = rest.substr(0, next);
    constexpr std::string_view kKey = "SUBSYSTEM=";
    if (field.starts_with(kKey)) subsystem = field.substr(kKey.size());
    if (next == std::string_view::npos) break;
    rest = rest.substr(next + 1);
  }
  if (subsystem.empty()) return malformed;
  const auto action = action_of(head.substr(0, at));
  const auto kind = subsystem_of(subsystem);
  // Queues and ports of an interface have uevents of their own subsystems.
  if (!action || !kind) return make_error(Error::Kind::NoData, "a uevent of no interest");
  return Uevent{*action, *kind, std::string(name)};
}

UeventWatch::UeventWatch(std::unique_ptr<NetlinkSource> source, const FileReader& files, std::string sys_root)
    : source_(std::move(source)), files_(files), sys_root_(std::move(sys_root)) {
  learn_nodes();
}

void UeventWatch::learn_nodes() {
  const std::string root = sys_root_ + "/class/infiniband_verbs";
  const auto nodes = files_.list(root);
  if (!nodes) return;
  for (const std::string& node : *nodes) {
    const auto device = read_trimmed(files_, root + "/" + node + "/ibdev");
    if (!device || !model::valid_name(*device)) continue;
    if (device_of_node_.size() >= kMaxNodes) device_of_node_.clear();
    device_of_node_[node] = *device;
  }
}

void UeventWatch::translate(const Uevent& event, std::vector<DeviceEvent>& out) {
  using Kind = DeviceEvent::Kind;
  if (event.subsystem == UeventSubsystem::Net) {
    if (event.action != UeventAction::Change) out.push_back({Kind::Interface, event.name});
    return;
  }
  if (event.action == UeventAction::Move) {  // udev renames rxe0 to rocep0s3
    learn_nodes();
    out.push_back({Kind::Lost, event.name});
    return;
  }
  if (event.action == UeventAction::Change) return;
  std::string device = event.name;
  if (event.subsystem == UeventSubsystem::InfiniBandVerbs) {
    if (event.action == UeventAction::Add) learn_nodes();
    const auto known = device_of_node_.find(event.name);
    if (known == device_of_node_.end()) {
      out.push_back({Kind::Lost, event.name});  // some device, unknown which
      return;
    }
    device = known->second;
  }
  out.push_back({event.action == UeventAction::Add ? Kind::Added : Kind::Removed, device});
}

Result<std::vector<DeviceEvent>> UeventWatch::take() {
  std::vector<DeviceEvent> events;
  for (std::size_t i = 0; i < kMaxEvents; ++i) {
    auto bytes = source_->receive();
    if (!bytes && bytes.error().kind == Error::Kind::NoData) break;
    if (!bytes && bytes.error().kind == Error::Kind::Exhausted) {
      ++counts_.overruns;
      learn_nodes();
      events.push_back({DeviceEvent::Kind::Lost, ""});
      continue;
    }
    if (!bytes) return bytes.error();
    ++counts_.received;
    const auto event = parse_uevent(*bytes);
    if (event)
      translate(*event, events);
    else
      ++(event.error().kind == Error::Kind::NoData ? counts_.other : counts_.malformed);
  }
  return events;
}

}  // namespace weft::inventory
