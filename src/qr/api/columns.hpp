// The part of a rank in the calls of column_factors: its engine, and the messages with panels and block columns of R.
// Layer: algorithm, over group_operation.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr_columns.hpp>

#include "core/aligned_buffer.hpp"
#include "core/at.hpp"
#include "core/format.hpp"
#include "qr/api/device_room.hpp"
#include "qr/api/group_operation.hpp"
#include "qr/api/operation_call.hpp"
#include "qr/api/packed_rows.hpp"
#include "qr/checks/checks.hpp"
#include "qr/host/columns.hpp"
#include "qr/thresholds.hpp"
#include "run/dispatch.hpp"

namespace ballast::qr {

inline index panels_of(index steps, index block) { return (steps + block - 1) / block; }

// A factored panel of this rank, tau also where its engine reaches it, and the seal of both.
template <class S>
struct own_panel {
  matrix_view<const S> V;
  std::vector<S> tau;
  std::shared_ptr<S> reachable;
  std::uint64_t seal = 0;
};

// A panel as it came from its owner.
template <class S>
struct panel_message {
  bool stopped = false;  // a rank has found a fault for which the factorization begins again
  std::uint64_t seal = 0;
  index rows = 0;
  std::vector<S> tau;
  std::shared_ptr<S> memory;  // holds V, then tau, where the engine reaches them
  matrix_view<S> V() const { return column_major(memory.get(), rows, static_cast<index>(tau.size()), std::max<index>(rows, 1)); }
  S* reachable_tau() const { return memory.get() + rows * static_cast<index>(tau.size()); }
};

// A block column of R as it came from its owner. `refused`: a column that has no pivot; −1 if all have one.
template <class S>
struct matrix_message {
  index rows = 0, columns = 0, refused = -1;
  std::vector<S> values;
  matrix_view<const S> view() const { return column_major<const S>(values.data(), rows, columns); }
};

// One rank's part of a call. Its engine is one of the host's backends, or that of a device of a group, whose numbers are `devices`. Panels
// go from rank to rank in messages; between devices a message says where V lies, and the other device copies it.
template <class S>
class rank_call {
 public:
  rank_call(group_operation<S>& call, const problem& size, std::span<const int> devices = {})
      : call_(call),
        devices_(devices),
        plan_(size, devices.empty() ? host_execution(call.alone()) : call.alone(), {}, core::arena::spares::no),
        on_(plan_, plan_.settings_for(call.silent()), checked_backend()) {}

  const context& run() const { return on_.run; }
  engine<S>& on() { return *on_.on; }
  std::string_view scheme() const { return plan_.scheme; }
  std::string token() const { return std::string(plan_.token.view()); }
  bool on_device() const { return !devices_.empty(); }
  bool is_protected() const { return on_.how.protection != protection::off; }
  bool repairs() const { return on_.how.protection == protection::correct; }
  bool lost() const { return on_.lost(); }

  void check_ranks(const block_columns& of) const {
    if (of.ranks != static_cast<int>(call_.over().size()) || of.rank != static_cast<int>(call_.over().place()))
      throw invalid_argument_error(
          fmt::format("{}: group: expected the {} ranks that made the factors, got {}", token(), of.ranks, call_.over().size()));
  }

  // Runs the call's work with the memory of its plan, and adds what the rank has recorded to the report of all.
  template <class Work>
  void work(Work&& work) {
    run::in_call(&plan_.memory, plan_.where.device, plan_.token, std::forward<Work>(work));
    call_.add(on_.seen.collect());
  }

  // Memory of the engine for a matrix.
  std::shared_ptr<S> allocate(index rows, index columns) { return on().allocate(std::max<index>(core::checked_product(rows, columns), 1)); }
  // Returns the caller's matrix where the engine can read it.
  resident<const S> reach(matrix_view<const S> of) { return reach(of, devices_); }
  // The same; it may lie on one of these devices.
  resident<const S> reach(matrix_view<const S> of, std::span<const int> devices) {
    if (!on_device() || of.rows == 0 || of.columns == 0) return {{}, of};
    return bring(devices, plan_, on_, of);
  }
  // Copies between matrices that the engine reaches, or one of which is the host's, and compares the bits.
  void copy(const matrix_view<const S>& from, const matrix_view<S>& to) {
    if (from.rows == 0 || from.columns == 0) return;
    if (!on_device()) return copy_alike<S>(from, to);
    copy_verified<S>(run(), on(), from, to);
    on().wait();
  }
  // Returns a copy of tau that the engine reaches.
  std::shared_ptr<S> reachable(const std::vector<S>& tau) {
    const index count = static_cast<index>(tau.size());
    std::shared_ptr<S> made = allocate(count, 1);
    on().copy(column_major(tau.data(), count, index{1}, std::max<index>(count, 1)),
              column_major(made.get(), count, index{1}, std::max<index>(count, 1)));
    return made;
  }
  std::uint64_t seal(const matrix_view<const S>& V, const std::vector<S>& tau) {
    return abft::chained(on().hash(V), abft::seal_of(reals(tau.data()), static_cast<index>(tau.size()) * k_reals<S>));
  }
  // Shows V's first column to the injector.
  void strike([[maybe_unused]] inject::site where, [[maybe_unused]] const inject::position& here,
              [[maybe_unused]] const matrix_view<S>& V) {
    if constexpr (inject::active_injector::enabled) on().strike(where, here, V);
  }

  // Returns a number of every rank.
  std::vector<std::int64_t> gather(std::int64_t own) {
    std::vector<std::int64_t> made;
    for (const auto& each : call_.over().gather(std::span<const std::int64_t>(&own, 1))) made.push_back(each.at(0));
    return made;
  }

  // send_panel, take_panel: one exchange in which the owner sends a panel and every rank whether it has found a fault. A rank may compute
  // between them.
  void send_panel(bool stop, const std::optional<own_panel<S>>& panel) {
    const std::size_t count = panel ? panel->tau.size() : 0, rows = panel ? core::at(panel->V.rows) : 0;
    panel_head head{stop ? std::uint64_t{1} : 0, panel ? panel->seal : 0, 0, 0};
    if (panel && on_device()) head = {head.stopped, head.seal, reinterpret_cast<std::uintptr_t>(panel->V.data), panel->V.column_stride};
    std::vector<std::byte> made(sizeof head + (count + (on_device() ? 0 : rows * count)) * sizeof(S));
    std::byte* to = made.data();
    const auto put = [&](const void* from, std::size_t bytes) {
      if (bytes > 0) std::memcpy(to, from, bytes);
      to += bytes;
    };
    put(&head, sizeof head);
    if (panel) put(panel->tau.data(), count * sizeof(S));
    for (std::size_t l = 0; l < count && !on_device(); ++l) put(&panel->V(0, static_cast<index>(l)), rows * sizeof(S));
    send(made);
  }

  panel_message<S> take_panel(index k, index m, const block_columns& of, index steps) {
    panel_message<S> made;
    const std::vector<wire::bytes> parts = call_.over().end_all_to_all();
    const std::size_t owner = core::at(k % of.ranks), count = core::at(std::min(of.block, steps - k * of.block));
    made.rows = m - k * of.block;
    made.tau.resize(count);
    const std::size_t values = core::at(made.rows) * count;
    made.memory = allocate(made.rows + 1, static_cast<index>(count));
    panel_head head;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const std::size_t body = p == owner ? (count + (on_device() ? 0 : values)) * sizeof(S) : 0;
      if (parts[p].size() != sizeof head + body) throw error("qr: a panel has another size than expected");
      std::memcpy(&head, parts[p].data(), sizeof head);
      made.stopped = made.stopped || head.stopped != 0;
      if (p != owner) continue;
      made.seal = head.seal;
      const std::byte* const tau = parts[p].data() + sizeof head;
      std::memcpy(made.tau.data(), tau, count * sizeof(S));
      if (on_device()) {
        take_v(devices_[owner], head, made);
        continue;
      }
      std::memcpy(made.memory.get(), tau + count * sizeof(S), values * sizeof(S));
      std::memcpy(made.reachable_tau(), tau, count * sizeof(S));
    }
    return made;
  }

  // The same for a block column of R.
  void send_matrix(const matrix_view<const S>& of, index refused) {
    const std::size_t rows = core::at(of.rows);
    std::vector<std::byte> made(sizeof refused + rows * core::at(of.columns) * sizeof(S));
    std::memcpy(made.data(), &refused, sizeof refused);
    for (index l = 0; l < of.columns; ++l)
      std::memcpy(made.data() + sizeof refused + core::at(l) * rows * sizeof(S), &of(0, l), rows * sizeof(S));
    send(made);
  }
  matrix_message<S> take_matrix(int owner, index rows, index columns) {
    const wire::bytes part = std::move(call_.over().end_all_to_all()[core::at(owner)]);
    matrix_message<S> made{rows, columns, -1, std::vector<S>(core::at(rows * columns))};
    if (part.size() != sizeof made.refused + made.values.size() * sizeof(S)) throw error("qr: a block of R has another size than expected");
    std::memcpy(&made.refused, part.data(), sizeof made.refused);
    std::memcpy(made.values.data(), part.data() + sizeof made.refused, made.values.size() * sizeof(S));
    return made;
  }

 private:
  static execution host_execution(execution where) {
    if (where.backend == backend::automatic) where.backend = run::host_backend();
    return where;
  }
  // The head of a message with a panel. Between devices it has V's place in the memory of its owner.
  struct panel_head {
    std::uint64_t stopped = 0, seal = 0;
    std::uint64_t address = 0;
    std::int64_t column_stride = 0;
  };
  // Copies V from the device of its owner, which keeps it there until the call ends on all.
  void take_v(int owner, const panel_head& head, panel_message<S>& made) {
    const matrix_view<const S> there{std::bit_cast<const S*>(head.address), made.rows, static_cast<index>(made.tau.size()), 1,
                                     head.column_stride};
    on().wait();  // the memory of `made` is ordered on the engine's streams
    fetch_columns<S>(owner, there, made.V());
    const index count = static_cast<index>(made.tau.size());
    on().copy(column_major<const S>(made.tau.data(), count, index{1}, count), column_major(made.reachable_tau(), count, index{1}, count));
    on().wait();
  }

  backend checked_backend() const {
    if (plan_.backend == backend::cuda && !on_device())
      throw unsupported_error(fmt::format("{}: backend: expected cpu or reference for columns on ranks, got cuda", token()));
    return plan_.backend;
  }
  void send(const std::vector<std::byte>& block) {
    call_.over().begin_all_to_all(std::vector<std::span<const std::byte>>(call_.over().size(), block));
  }

  group_operation<S>& call_;
  const std::span<const int> devices_;
  prepared plan_;
  operation_call<S> on_;
};

}  // namespace ballast::qr
