// QR of columns on the devices of a group: each device is the rank of a thread and has its block columns in its memory. See
// include/ballast/qr_columns.hpp.
// Layer: algorithm, over columns_work.hpp and group/device_threads.hpp. docs/design/distributed.md, "QR of columns".
#include "qr/api/device_columns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/at.hpp"
#include "core/format.hpp"
#include "group/device_threads.hpp"
#include "group/state.hpp"
#include "qr/api/columns_work.hpp"
#include "qr/sites.hpp"
#include "qr/thresholds.hpp"

namespace ballast::qr {

namespace {

constexpr index k_most_block_on_device = 1024;

// Returns memory of a device that is released on the default stream when its last owner ends.
template <class S>
std::shared_ptr<S> lasting_matrix(index rows, index columns) {
  resident<S> made = new_matrix<S>(std::max<index>(rows, 1), std::max<index>(columns, 1));
  const auto kept = std::make_shared<ballast::cuda::device_buffer>(std::move(made.memory));
  return {kept, static_cast<S*>(kept->data())};
}

// A call on a group of devices: the first `ranks` of them take part.
template <class S>
class call_of_devices {
 public:
  call_of_devices(const execution& where, const call& now, std::string token, std::size_t ranks)
      : how_(run::settings_of(where, now)),
        token_(std::move(token)),
        devices_(where.group.internal()->devices),
        threads_(where.group, ranks) {
    wire::check_execution_on_devices(where, token_);
    run::check_protection(where, token_, false);
    wire::check_call_on_devices(now, token_);
    devices_.resize(ranks);
  }

  // Runs work(rank, its part of the call) on the thread of each device. Returns the report of all.
  template <class Work>
  report run(const problem& size, group_call what, index columns, const Work& work) {
    std::vector<report> reports(devices_.size());
    threads_.run(token_, [&](std::size_t p) {
      const run::settings own = threads_.settings_of(how_, p);
      const inject::scope faults(own.faults);
      group_operation<S> call(own.where(), own.now(), token_, what, columns);
      reports[p] = call.run([&] {
        rank_call<S> here(call, size, devices_);
        here.work([&] { work(static_cast<int>(p), call, here); });
      });
    });
    return std::move(reports[0]);
  }
  void wait_for(const void* operand) const { threads_.wait_for({operand}); }
  const std::vector<int>& devices() const { return devices_; }
  const run::settings& how() const { return how_; }

 private:
  run::settings how_;
  std::string token_;
  std::vector<int> devices_;
  wire::device_threads threads_;
};

template <class S>
call_of_devices<S> call_for(const column_factors<S>& of, const call& now, const problem& size) {
  const std::size_t most = of.where.group.internal()->devices.size();
  if (of.devices.empty() || of.devices.size() > most)
    throw invalid_argument_error(
        fmt::format("{}: group: expected the devices that made the factors of {} parts, got {}", to_token(size), of.devices.size(), most));
  return {of.where, now, to_token(size), of.devices.size()};
}

template <class S>
problem size_of_factors(const column_factors<S>& of) {
  return problem_of<S>(of.devices.empty() ? 1 : of.devices[0].storage.rows, of.own.columns);
}

// Computes op(Q) C for a device's share of the columns, and stores it in host memory.
template <class S>
void apply_to_share(rank_call<S>& here, const column_part<S>& part, bool transposed, matrix_view<const S> C, matrix_view<S> to) {
  const std::shared_ptr<S> memory = here.allocate(C.rows, C.columns);
  const matrix_view<S> mine = column_major(memory.get(), C.rows, C.columns, C.rows);
  const auto given = here.reach(C);
  here.copy(given.view, mine);
  apply_panels(here, part, transposed, mine, nullptr);
  here.on().wait();
  if (C.columns > 0 && !here.lost()) copy_columns(matrix_view<const S>(mine), to);
}

// Returns the first column of R, in the memory of the device, whose diagonal element is rounding beside it, −1 if there is none.
template <class S>
index column_without_pivot(rank_call<S>& here, const matrix_view<S>& R) {
  const index n = R.columns;
  core::vector<column_size> sizes(at(n));
  std::vector<S> diagonal(at(n));
  here.on().column_sizes(R, sizes.data());
  const std::shared_ptr<S> memory = here.allocate(n, 1);
  const matrix_view<S> pivots = column_major(memory.get(), n, index{1});
  here.on().copy(matrix_view<const S>{R.data, n, 1, n + 1, n}, pivots);
  here.strike(site::pivot, {}, pivots);
  here.on().copy(pivots, column_major(diagonal.data(), n, index{1}));
  here.on().wait();
  index refused = -1;
  for (index j = n - 1; j >= 0; --j) {
    const double norm = std::ldexp(sizes[at(j)].norm, sizes[at(j)].exponent);
    if (size_of_number(diagonal[at(j)]) <= thresholds::least_pivot<real_of<S>>(n) * norm) refused = j;
  }
  return refused;
}

// Stores a device's columns of the identity.
template <class S>
void set_identity(rank_call<S>& here, const block_columns& own, const matrix_view<S>& C) {
  here.on().wait();
  const auto device = ballast::cuda::current_device();
  device->zero(C.data, C.rows * C.columns * k_bytes<S>, nullptr);
  device->synchronize(nullptr);
  const std::vector<S> ones(at(own.block), S(1));
  for (index j = 0; j < own.count(); j += own.block) {
    const index width = std::min(own.block, own.count() - j);
    const matrix_view<S> diagonal{&C(own.global(j), j), width, 1, C.column_stride + 1, C.column_stride * width};
    here.on().copy(column_major(ones.data(), width, index{1}, width), diagonal);
  }
  here.on().wait();
}

}  // namespace

template <class S>
column_factors<S> factor_columns_on_devices(matrix_view<const S> A, index block, const execution& where, const call& now) {
  const problem size = problem_of<S>(A.rows, A.columns);
  const std::string token = to_token(size);
  check_view(A, "A", token);
  if (block < 1 || block > k_most_block_on_device)
    throw invalid_argument_error(fmt::format("{}: block: expected 1 to {} columns, got {}", token, k_most_block_on_device, block));
  const index blocks = (A.columns + block - 1) / block;
  const std::size_t ranks = std::min(where.group.internal()->devices.size(), static_cast<std::size_t>(blocks));
  call_of_devices<S> call(where, now, token, ranks);
  call.wait_for(A.data);
  column_factors<S> made;
  made.where = where;
  made.own = {A.columns, block, static_cast<int>(ranks), 0};
  made.devices.resize(ranks);
  std::vector<std::vector<S>> taus(ranks, std::vector<S>(at(std::min(A.rows, A.columns)), S(0)));
  // V lies here until all threads have ended: others may still read it when a device leaves by an error.
  std::vector<std::shared_ptr<S>> homes(ranks);
  made.report = call.run(size, group_call::factor_columns, block, [&](int rank, group_operation<S>& on, rank_call<S>& here) {
    const std::size_t p = at(rank);
    const block_columns own{A.columns, block, static_cast<int>(ranks), rank};
    homes[p] = lasting_matrix<S>(A.rows, own.count() + (own.count() + block - 1) / block);
    factorization_of_columns<S> work(
        here, A.rows, own,
        [&](index i) { return A.block(0, own.global(i * block), A.rows, std::min<index>(block, own.count() - i * block)); }, taus[p],
        homes[p]);
    on.attempt("qr.columns", [&](int) { return work.pass(); });
    made.devices[p] = {call.devices()[p], own, column_major<const S>(homes[p].get(), A.rows, own.count(), A.rows), homes[p]};
  });
  made.tau = std::move(taus[0]);
  return made;
}

template <class S>
matrix<S> r_of_devices(const column_factors<S>& of) {
  const problem size = size_of_factors(of);
  const index steps = std::min(size.rows, size.columns);
  matrix<S> made(steps, size.columns, order::column_major);
  for (const device_columns<S>& each : of.devices) {
    const ballast::cuda::device_scope there(each.device);
    for (index j = 0; j < each.own.count(); j += each.own.block) {
      const index first = each.own.global(j), width = std::min(each.own.block, each.own.count() - j), rows = std::min(steps, first + width);
      copy_columns(each.storage.block(0, j, rows, width), made.view().block(0, first, rows, width));
      for (index l = 0; l < width; ++l)
        for (index i = first + l + 1; i < rows; ++i) made(i, first + l) = 0;
    }
  }
  return made;
}

template <class S>
computed<S> q_of_devices(const column_factors<S>& of, const call& now) {
  const problem size = size_of_factors(of);
  call_of_devices<S> call = call_for(of, now, size);
  computed<S> made{matrix<S>(size.rows, std::min(size.rows, size.columns), order::column_major), {}};
  made.report = call.run(size, group_call::q_columns, size.columns, [&](int rank, group_operation<S>&, rank_call<S>& here) {
    const device_columns<S>& part = of.devices[at(rank)];
    const block_columns own{made.values.columns(), of.own.block, of.own.ranks, rank};
    const std::shared_ptr<S> memory = here.allocate(size.rows, own.count());
    const matrix_view<S> C = column_major(memory.get(), size.rows, own.count(), size.rows);
    if (own.count() > 0) set_identity(here, own, C);
    apply_panels(here, {part.own, part.storage, of.tau}, false, C, &own);
    here.on().wait();
    if (here.lost()) return;
    for (index j = 0; j < own.count(); j += own.block) {
      const index width = std::min(own.block, own.count() - j);
      copy_columns(matrix_view<const S>(C.block(0, j, size.rows, width)), made.values.view().block(0, own.global(j), size.rows, width));
    }
  });
  return made;
}

template <class S>
computed<S> product_of_devices(const column_factors<S>& of, bool transposed, matrix_view<const S> C, const call& now) {
  const problem size = size_of_factors(of);
  call_of_devices<S> call = call_for(of, now, size);
  check_view(C, "C", to_token(size));
  if (C.rows != size.rows) throw invalid_argument_error(fmt::format("{}: C: expected {} rows, got {}", to_token(size), size.rows, C.rows));
  call.wait_for(C.data);
  computed<S> made{matrix<S>(C.rows, C.columns, order::column_major), {}};
  const group_call what = transposed ? group_call::apply_transposed : group_call::apply;
  made.report = call.run(size, what, size.columns, [&](int rank, group_operation<S>&, rank_call<S>& here) {
    const device_columns<S>& part = of.devices[at(rank)];
    const index first = C.columns * rank / of.own.ranks, end = C.columns * (rank + 1) / of.own.ranks;
    apply_to_share(here, {part.own, part.storage, of.tau}, transposed, C.block(0, first, C.rows, end - first),
                   made.values.view().block(0, first, C.rows, end - first));
  });
  return made;
}

// QᵀB by all devices, then the triangle on the first.
template <class S>
computed<S> solution_of_devices(const column_factors<S>& of, matrix_view<const S> B, const call& now) {
  const problem size = size_of_factors(of);
  const index n = size.columns;
  if (size.rows < n)
    throw invalid_argument_error(fmt::format("{}: A: expected at least as many rows as columns for least squares", to_token(size)));
  computed<S> Y = product_of_devices(of, true, B, now);
  computed<S> made{matrix<S>(n, B.columns, order::column_major), {}};
  index refused = -1;
  call_of_devices<S> call(of.where, now, to_token(size), 1);
  std::vector<int> all;
  for (const device_columns<S>& each : of.devices) all.push_back(each.device);
  made.report = call.run(size, group_call::solve, n, [&](int, group_operation<S>& on, rank_call<S>& here) {
    const resident<S> R = new_matrix<S>(n, n);
    for (const device_columns<S>& each : of.devices) {
      for (index j = 0; j < each.own.count(); j += each.own.block) {
        const index width = std::min(each.own.block, each.own.count() - j);
        const auto given = here.reach(each.storage.block(0, j, n, width), all);
        here.copy(given.view, R.view.block(0, each.own.global(j), n, width));
      }
    }
    // Looked at twice with protection: what is found decides whether there is a result.
    on.attempt("qr.substitution", [&](int) {
      refused = column_without_pivot(here, R.view);
      abft::finding found;
      if (!here.is_protected()) return std::optional(found);
      here.run().seen.checked(1);
      if (const index again = column_without_pivot(here, R.view); again != refused)
        found = {.word = abft::k_fail, .residual = std::numeric_limits<double>::quiet_NaN(), .index = std::max(again, refused)};
      return std::optional(found);
    });
    if (refused >= 0) return;
    const resident<S> right = new_matrix<S>(n, B.columns), X = new_matrix<S>(n, B.columns);
    here.copy(std::as_const(Y.values).view().block(0, 0, n, B.columns), right.view);
    solve_triangle<S>(here.run(), here.on(), false, R.view, right.view, X.view);
    here.on().wait();
    copy_columns(matrix_view<const S>(X.view), made.values.view());
  });
  if (refused >= 0)
    throw rank_deficient_error(
        fmt::format("{}: expected columns of full rank for least squares, got column {} of R without a pivot", to_token(size), refused));
  made.report.merge(Y.report);
  return made;
}

#define BALLAST_INSTANTIATE(S)                                                                                         \
  template column_factors<S> factor_columns_on_devices<S>(matrix_view<const S>, index, const execution&, const call&); \
  template matrix<S> r_of_devices<S>(const column_factors<S>&);                                                        \
  template computed<S> q_of_devices<S>(const column_factors<S>&, const call&);                                         \
  template computed<S> product_of_devices<S>(const column_factors<S>&, bool, matrix_view<const S>, const call&);       \
  template computed<S> solution_of_devices<S>(const column_factors<S>&, matrix_view<const S>, const call&);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr
