// Reports of all ranks. See session.hpp.
#include "group/session.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include "group/state.hpp"

namespace ballast::wire {

namespace {

// Numbers and texts of a report as bytes, in a fixed order.
class writer {
 public:
  template <class Number>
  void put(const Number& value) {
    static_assert(std::is_trivially_copyable_v<Number>);
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    made.insert(made.end(), from, from + sizeof value);
  }
  void put(const std::string& text) {
    put(static_cast<std::uint64_t>(text.size()));
    for (const char each : text) made.push_back(static_cast<std::byte>(each));
  }
  bytes made;
};

class reader {
 public:
  explicit reader(const bytes& from) : from_(from) {}
  template <class Number>
  void get(Number& value) {
    if (sizeof value > from_.size() - at_) return end();
    std::memcpy(&value, from_.data() + at_, sizeof value);
    at_ += sizeof value;
  }
  void get(std::string& text) {
    std::uint64_t size = 0;
    get(size);
    if (size > from_.size() - at_) return end();
    text.assign(reinterpret_cast<const char*>(from_.data()) + at_, size);
    at_ += size;
  }
  bool at_end() const { return at_ == from_.size(); }

 private:
  // The bytes are no report: without protection a bit of a length may have changed.
  void end() { at_ = from_.size(); }
  const bytes& from_;
  std::size_t at_ = 0;
};

template <class Stream, class Report>
void each_count(Stream&& stream, Report& value) {
  stream(value.verdict);
  stream(value.checks);
  stream(value.detected);
  stream(value.corrected);
  stream(value.recomputed);
  stream(value.uncorrectable);
  stream(value.false_alarms);
  stream(value.seconds);
  stream(value.condition);
}

template <class Stream, class Event>
void each_field(Stream&& stream, Event& value) {
  stream(value.site);
  stream(value.index);
  stream(value.residual);
  stream(value.threshold);
  stream(value.action);
  stream(value.device);
  stream(value.thread);
  stream(value.multiprocessor);
  stream(value.time);
  stream(value.damaged);
}

}  // namespace

exchange& exchange_of(const group& ranks, std::string_view token) {
  group::state& state = *ranks.internal();
  if (!state.over) throw unsupported_error(fmt::format("{}: group: expected ranks of an engine, got devices", token));
  return *state.over;
}

std::string lost_message(const exchange& over, std::string_view token) {
  std::string names;
  for (const int each : over.lost()) names += (names.empty() ? "" : ", ") + std::to_string(each);
  return fmt::format("{}: expected all ranks of the group until the end of the call, lost {}", token, names);
}

std::function<void(const progress&)> progress_of_all(const std::function<void(const progress&)>& own, bool any) {
  if (own || !any) return own;
  return [](const progress&) {};
}

report joined(exchange& over, const report& own) {
  writer out;
  const auto put = [&](const auto& value) { out.put(value); };
  each_count(put, own);
  out.put(static_cast<std::uint64_t>(own.events.size()));
  for (const event& each : own.events) each_field(put, each);
  const std::vector<bytes> parts = over.gather(out.made);
  report made = own;
  made.events.clear();
  double seconds = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    reader in(parts[p]);
    const auto get = [&](auto& value) { in.get(value); };
    report part;
    each_count(get, part);
    std::uint64_t events = 0;
    in.get(events);
    for (std::uint64_t e = 0; e < events && !in.at_end(); ++e) {
      event each;
      each_field(get, each);
      each.rank = over.members()[p];
      part.events.push_back(std::move(each));
    }
    seconds = std::max(seconds, part.seconds);
    if (p > 0) {
      made.merge(part);
      continue;
    }
    part.problem = made.problem;
    part.backend = made.backend;
    part.protection = made.protection;
    part.scheme = made.scheme;
    made = std::move(part);
  }
  made.seconds = seconds;
  return made;
}

}  // namespace ballast::wire
