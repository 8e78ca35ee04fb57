// Groups of ranks: an engine that is a table of functions, and NCCL.
// Layer: interface.
#include <exception>
#include <memory>
#include <utility>

#include "c/handles.hpp"
#include "core/format.hpp"

namespace ballast::c {

namespace {

// The caller's table as an engine.
class table_transport final : public transport {
 public:
  explicit table_transport(const ballast_transport& table) : table_(table) {}
  table_transport(const table_transport&) = delete;
  table_transport& operator=(const table_transport&) = delete;
  ~table_transport() override {
    if (owns_ && table_.destroy != nullptr) table_.destroy(table_.user);
  }
  // From now on the table is this engine's. A function that fails leaves it to the caller.
  void keep() { owns_ = true; }

  int rank() const override { return table_.rank; }
  int size() const override { return table_.ranks; }
  void send(int to, std::span<const std::byte> bytes) override {
    if (const std::int32_t status = table_.send(table_.user, to, bytes.data(), bytes.size()); status != 0)
      throw device_error(fmt::format("group: transport: send to rank {}: expected 0, got {}", to, status));
  }
  int receive(std::vector<std::byte>& bytes, double seconds) override {
    // No exception may pass the functions of C between: it is kept until they have returned.
    struct message {
      std::vector<std::byte>& bytes;
      std::exception_ptr failed;
    } taken{bytes, nullptr};
    const auto take = [](void* to, const void* from, std::size_t count) {
      auto& own = *static_cast<message*>(to);
      const auto* const first = static_cast<const std::byte*>(from);
      try {
        own.bytes.assign(first, first + count);
      } catch (...) {
        own.failed = std::current_exception();
      }
    };
    bytes.clear();
    const std::int32_t from = table_.receive(table_.user, seconds, take, &taken);
    if (taken.failed) std::rethrow_exception(taken.failed);
    if (from < -1 || from >= table_.ranks)
      throw device_error(fmt::format("group: transport: receive: expected a rank below {} or -1, got {}", table_.ranks, from));
    return from;
  }
  bool lost(int rank) override { return table_.lost != nullptr && table_.lost(table_.user, rank) != 0; }

 private:
  ballast_transport table_;
  bool owns_ = false;
};

group_options options_of(const ballast_group_settings* given) {
  group_options made;
  if (given == nullptr) return made;
  const auto settings = read_struct(given, "settings");
  if (settings.tries != 0) made.tries = settings.tries;
  if (settings.resend_after != 0) made.resend_after = settings.resend_after;
  if (settings.patience != 0) made.patience = settings.patience;
  return made;
}

}  // namespace

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_group_create(const ballast_transport* transport, const ballast_group_settings* settings, ballast_group** group,
                             ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(group, "group") = nullptr;
    const auto table = read_struct(transport, "transport");
    if (table.send == nullptr || table.receive == nullptr)
      throw ballast::invalid_argument_error(
          ballast::fmt::format("transport: {}: expected the address of a function, got null", table.send == nullptr ? "send" : "receive"));
    const auto engine = std::make_shared<table_transport>(table);
    *group = new ballast_group(ballast::group(engine, options_of(settings)));
    engine->keep();
  });
}

int32_t ballast_group_nccl(void* communicator, const ballast_group_settings* settings, ballast_group** group, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(group, "group") = nullptr;
    *group = new ballast_group(ballast::group::nccl(communicator, options_of(settings)));
  });
}

void ballast_group_destroy(ballast_group* group) { destroy(group); }

int32_t ballast_group_place(const ballast_group* group, int32_t* rank, int32_t* ranks, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast_group& of = needed(group, "group");
    output(rank, "rank");
    output(ranks, "ranks");
    *rank = of.value.rank();
    *ranks = of.value.size();
  });
}

int32_t ballast_group_barrier(const ballast_group* group, ballast_error* error) {
  return guarded(error, [&](frame&) { needed(group, "group").value.barrier(); });
}

int32_t ballast_group_leave_call(const ballast_group* group, ballast_error* error) {
  return guarded(error, [&](frame&) { needed(group, "group").value.leave_call(); });
}

int32_t ballast_options_set_group(ballast_options* options, const ballast_group* group, ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_options& to = needed(options, "options");
    to.where.group = group == nullptr ? ballast::group() : needed(group, "group").value;
  });
}
