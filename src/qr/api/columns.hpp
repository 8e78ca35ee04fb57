// The part of a rank in the calls of column_factors: its engine, and the messages with panels and block columns of R.
// Layer: algorithm, over group_operation.hpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
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
#include "qr/api/group_operation.hpp"
#include "qr/api/operation_call.hpp"
#include "qr/checks/checks.hpp"
#include "qr/host/columns.hpp"
#include "qr/thresholds.hpp"
#include "run/dispatch.hpp"

namespace ballast::qr {

inline index panels_of(index steps, index block) { return (steps + block - 1) / block; }

// A factored panel of this rank, and the seal of tau and V.
template <class S>
struct own_panel {
  matrix_view<const S> V;
  std::vector<S> tau;
  std::uint64_t seal = 0;
};

// A panel as it came from its owner.
template <class S>
struct panel_message {
  bool stopped = false;  // a rank has found a fault for which the factorization begins again
  std::uint64_t seal = 0;
  index rows = 0;
  std::vector<S> tau, values;
  matrix_view<const S> V() const { return column_major<const S>(values.data(), rows, static_cast<index>(tau.size())); }
  std::uint64_t V_seal() const {
    return host::seal_of_columns<S>(V(), abft::seal_of(reals(tau.data()), static_cast<index>(tau.size()) * k_reals<S>));
  }
};

// A block column of R as it came from its owner. `refused`: a column that has no pivot; −1 if all have one.
template <class S>
struct matrix_message {
  index rows = 0, columns = 0, refused = -1;
  std::vector<S> values;
  matrix_view<const S> view() const { return column_major<const S>(values.data(), rows, columns); }
};

// One rank's part of a call. Its engine is one of the host's backends.
template <class S>
class rank_call {
 public:
  rank_call(group_operation<S>& call, const problem& size)
      : call_(call),
        plan_(size, host_execution(call.alone()), {}, core::arena::spares::no),
        on_(plan_, plan_.settings_for(call.silent()), checked_backend()) {}

  const context& run() const { return on_.run; }
  engine<S>& on() { return *on_.on; }
  std::string_view scheme() const { return plan_.scheme; }
  std::string token() const { return std::string(plan_.token.view()); }
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

  // Returns a number of every rank.
  std::vector<std::int64_t> gather(std::int64_t own) {
    std::vector<std::int64_t> made;
    for (const auto& each : call_.over().gather(std::span<const std::int64_t>(&own, 1))) made.push_back(each.at(0));
    return made;
  }

  // send_panel, take_panel: one exchange in which the owner sends a panel and every rank whether it has found a fault. A rank may compute
  // between them.
  void send_panel(bool stop, const std::optional<own_panel<S>>& panel) {
    std::vector<std::byte> made;
    const std::uint64_t head[] = {stop ? std::uint64_t{1} : 0, panel ? panel->seal : 0};
    const std::size_t count = panel ? panel->tau.size() : 0, rows = panel ? core::at(panel->V.rows) : 0;
    made.resize(sizeof head + (count + rows * count) * sizeof(S));
    std::byte* to = made.data();
    const auto put = [&](const void* from, std::size_t bytes) {
      if (bytes > 0) std::memcpy(to, from, bytes);
      to += bytes;
    };
    put(head, sizeof head);
    if (panel) put(panel->tau.data(), count * sizeof(S));
    for (std::size_t l = 0; l < count; ++l) put(&panel->V(0, static_cast<index>(l)), rows * sizeof(S));
    send(made);
  }

  panel_message<S> take_panel(index k, index m, const block_columns& of, index steps) {
    panel_message<S> made;
    const std::vector<wire::bytes> parts = call_.over().end_all_to_all();
    const std::size_t owner = core::at(k % of.ranks), count = core::at(std::min(of.block, steps - k * of.block));
    made.rows = m - k * of.block;
    made.tau.resize(count);
    made.values.resize(core::at(made.rows) * count);
    std::uint64_t head[2];
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const std::size_t body = p == owner ? (count + made.values.size()) * sizeof(S) : 0;
      if (parts[p].size() != sizeof head + body) throw error("qr: a panel has another size than expected");
      std::memcpy(head, parts[p].data(), sizeof head);
      made.stopped = made.stopped || head[0] != 0;
      if (p != owner) continue;
      made.seal = head[1];
      std::memcpy(made.tau.data(), parts[p].data() + sizeof head, count * sizeof(S));
      if (!made.values.empty())
        std::memcpy(made.values.data(), parts[p].data() + sizeof head + count * sizeof(S), made.values.size() * sizeof(S));
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
  backend checked_backend() const {
    if (plan_.backend == backend::cuda)
      throw unsupported_error(fmt::format("{}: backend: expected cpu or reference for columns on ranks, got cuda", token()));
    return plan_.backend;
  }
  void send(const std::vector<std::byte>& block) {
    call_.over().begin_all_to_all(std::vector<std::span<const std::byte>>(call_.over().size(), block));
  }

  group_operation<S>& call_;
  prepared plan_;
  operation_call<S> on_;
};

}  // namespace ballast::qr
