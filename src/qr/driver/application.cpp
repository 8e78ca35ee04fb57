// Driver of the protected application of Q, and of the triangular solve.
// Layer: algorithm (driver). See application.hpp.
#include "qr/driver/application.hpp"

#include <algorithm>
#include <limits>

#include "abft/threshold.hpp"
#include "core/memory.hpp"
#include "qr/checks/checks.hpp"
#include "qr/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::qr {

namespace {

constexpr index k_solve_columns = 32;  // the most columns of one block of a triangular solve

// Copies, and again if the copy differs from another reading. copy(checked): returns the first column that differs, or −1.
template <class Copy>
void copy_twice(const context& run, Copy&& copy) {
  const bool checked = run.how.protection != protection::off;
  run::attempt(run.seen, run.how.protection, "qr.store", 0, [&](int) {
    abft::finding seen;
    seen.index = copy(checked);
    if (checked) run.seen.checked(1);
    if (seen.index < 0) return seen;
    seen.word = abft::k_fail;
    seen.residual = std::numeric_limits<double>::quiet_NaN();
    return seen;
  });
}

}  // namespace

template <class S>
orthogonal_factor<S>::orthogonal_factor(const context& run, engine<S>& on, const matrix_view<const S>& V, const S* tau)
    : run_(run), m_(V.rows), work_(on.make_applier(V, tau)) {
  if (work_->panels == 0) return;
  bool finite = true;
  work_->scan(&finite);
  work_->wait();
  if (!finite) work_->scan(&finite);  // a struck scan must not disable protection
  work_->wait();
  // Inf and NaN make every sum Inf or NaN: no check is possible.
  protected_ = run.how.protection != protection::off && finite;
}

template <class S>
void orthogonal_factor<S>::apply_block(applied_block<S>& X, index task, index tasks, index first) const {
  const inject::position where{task, tasks, 0, 1};
  run::attempt(run_.seen, run_.how.protection, "qr.q", 0, [&](int number) {
    applied_sums sums;
    X.compute(number > 0, protected_ ? &sums : nullptr);
    X.wait();
    if (!protected_) return abft::finding{};
    const bool repairs = run_.how.protection == protection::correct;
    const abft::tiers limits =
        thresholds::application<real_of<S>>(sums.norm, k_reals<S> * m_, k_reals<S> * work_->panels * work_->panel_width);
    abft::finding seen = compare(run_, where, sums.residual, repairs ? limits.clean : limits.wrong, "qr.q", first + sums.column);
    // A repetition judges a residual between the two thresholds, and columns with Inf or NaN if the others pass.
    seen.judged = passes(seen) ? !sums.odd : !(repairs && sums.residual <= limits.wrong);
    if (!passes(seen) || !seen.judged || number > 0) seen.bits = X.hash();
    return seen;
  });
  X.unscale();
}

template <class S>
void orthogonal_factor<S>::apply(bool transposed, const operand<S>& X, const matrix_view<S>& result) {
  const index columns = result.columns;
  // Two blocks if that is not slower, even for two columns: two threads then have work, and a fault costs only half of it.
  const index width = std::clamp<index>((columns + 1) / 2, std::clamp<index>(columns, 1, work_->least_columns), work_->most_columns);
  const index tasks = (columns + width - 1) / width;
  prepare(transposed, columns);
  core::vector<range> ranges;
  ranges.reserve(static_cast<std::size_t>(tasks));
  for (index t = 0; t < tasks; ++t) ranges.push_back({t * width, std::min(width, columns - t * width)});
  apply_to(transposed, X, result, ranges);
}

template <class S>
void orthogonal_factor<S>::prepare(bool transposed, index columns) {
  // encode() first: it takes longer than form(), and its result is needed later.
  if (protected_) work_->encode(transposed, columns < work_->panels * work_->panel_width / 2);
  if (work_->panels > 0 && !formed_) work_->form();
  formed_ = true;
}

template <class S>
void orthogonal_factor<S>::apply_to(bool transposed, const operand<S>& X, const matrix_view<S>& result, std::span<const range> ranges) {
  const index tasks = static_cast<index>(ranges.size());
  work_->each(tasks, [&](index s) {
    // Most panels change the identity's last columns: the longest task starts first, for threads, and while encode() runs.
    const index t = X.identity ? tasks - 1 - s : s;
    const range& here = ranges[static_cast<std::size_t>(t)];
    const auto block = work_->open(transposed, X, t, tasks, here.first, here.width, result);
    apply_block(*block, t, tasks, here.first);
  });
  work_->wait();
}

template <class S>
void copy_verified(const context& run, engine<S>& on, const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows,
                   const int* columns) {
  copy_twice(run, [&](bool checked) { return on.copy_checked(from, to, rows, columns, checked); });
}

template <class S>
void conjugate_verified(const context& run, engine<S>& on, const matrix_view<const S>& from, const matrix_view<S>& to, bool upper) {
  copy_twice(run, [&](bool checked) { return on.conjugate_checked(from, to, upper, checked); });
}

template <class S>
void solve_triangle(const context& run, engine<S>& on, bool transposed, const matrix_view<const S>& U, const matrix_view<const S>& B,
                    const matrix_view<S>& X) {
  const bool checked = run.how.protection != protection::off;
  // At least two blocks if there are two columns, so that two threads have work.
  const index width = std::max<index>(1, std::min(k_solve_columns, (B.columns + 1) / 2));
  const index blocks = (B.columns + width - 1) / width;
  core::vector<solve_sums> sums(static_cast<std::size_t>(blocks));
  on.solve(transposed, U, B, X, width, checked ? sums.data() : nullptr);
  on.wait();
  if (!checked) return;
  for (index t = 0; t < blocks; ++t) {
    solve_sums& here = sums[static_cast<std::size_t>(t)];
    const index first = t * width, columns = std::min(width, B.columns - first);
    run::attempt(run.seen, run.how.protection, "qr.solve", 0, [&](int number) {
      if (number > 0) {
        on.solve(transposed, U, B.block(0, first, B.rows, columns), X.block(0, first, X.rows, columns), width, &here);
        on.wait();
      }
      abft::finding seen = compare(run, {t, blocks, 0, 1}, here.residual, here.threshold, "qr.solve", first + here.column);
      // Inf and NaN that a recomputation repeats come from the data: a number in R, in x or in between exceeds the range.
      seen.judged = !(passes(seen) && here.odd);
      seen.bits = here.bits;
      return seen;
    });
  }
}

#define BALLAST_INSTANTIATE(S)                                                                                                            \
  template void copy_verified<S>(const context&, engine<S>&, const matrix_view<const S>&, const matrix_view<S>&, const int*, const int*); \
  template void conjugate_verified<S>(const context&, engine<S>&, const matrix_view<const S>&, const matrix_view<S>&, bool);              \
  template class orthogonal_factor<S>;                                                                                                    \
  template void solve_triangle<S>(const context&, engine<S>&, bool, const matrix_view<const S>&, const matrix_view<const S>&,             \
                                  const matrix_view<S>&);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr
