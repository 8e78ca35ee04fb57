// QR of block columns on the ranks of a group. See include/ballast/qr_columns.hpp.
// Layer: algorithm, over the drivers of one rank and group/session.hpp. docs/design/distributed.md, "QR of columns".
#include <ballast/qr_columns.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/at.hpp"
#include "core/format.hpp"
#include "qr/api/columns.hpp"
#include "qr/api/group_operation.hpp"
#include "qr/api/packed_rows.hpp"
#include "qr/arithmetic/random.hpp"
#include "qr/host/columns.hpp"
#include "qr/host/strike.hpp"

namespace ballast::qr {

using core::at;

namespace {

constexpr index k_most_block = 96;  // applier::most_columns of the host's backends

// ---------------------------------------------------------------- The factorization.

// One factorization on one rank. Two buffers hold the rank's columns, followed by the checksum of each of its blocks. Each update reads one
// and writes the other, so that a struck update is computed again. Finished rows and panels gather in the first buffer, their home.
template <class S>
class factorization_of_columns {
 public:
  factorization_of_columns(rank_call<S>& here, const matrix_view<const S>& A, column_factors<S>& made)
      : here_(here),
        A_(A),
        made_(made),
        own_(made.own),
        m_(A.rows),
        steps_(std::min(A.rows, own_.columns)),
        local_blocks_((own_.count() + own_.block - 1) / own_.block),
        buffers_{core::large_buffer<S>(core::checked_product(m_, own_.count() + local_blocks_)),
                 core::large_buffer<S>(core::checked_product(m_, own_.count() + local_blocks_))},
        weights_(at(own_.count())),
        norms_(at(local_blocks_)),
        seals_(at(local_blocks_)) {}

  // One attempt from the input; its finding on this rank.
  std::optional<abft::finding> pass() {
    bad_ = {};
    given_up_ = false;
    load();
    const index panels = panels_of(steps_, own_.block);
    std::optional<own_panel<S>> next;
    if (panels > 0 && mine(0)) next.emplace(factor_panel(0));
    if (panels > 0) send(0, next);
    for (index k = 0; k < panels; ++k) {
      panel_message<S> came = here_.take_panel(k, m_, own_, steps_);
      if constexpr (inject::active_injector::enabled)
        host::strike(here_.run().injector, site::reflector, {k, panels, 0, 1}, came.values.data(), static_cast<index>(came.values.size()));
      // All ranks see the same flags.
      if (came.stopped && here_.repairs()) break;
      std::optional<own_panel<S>> now = std::exchange(next, std::nullopt);
      std::copy(came.tau.begin(), came.tau.end(), made_.tau.begin() + k * own_.block);
      const matrix_view<const S> V = now ? now->V : came.V();
      orthogonal_factor<S> Q(here_.run(), here_.on(), V, came.tau.data());
      Q.prepare(true);
      index first = first_block_after(k);
      if (k + 1 < panels && mine(k + 1)) {
        update(Q, k, first, first + 1);
        next.emplace(factor_panel(k + 1));
        ++first;
      }
      if (k + 1 < panels) send(k + 1, next);
      update(Q, k, first, local_blocks_);
      if (!now && here_.is_protected()) note_seal(k, came.V_seal() == came.seal);
    }
    if (!(here_.repairs() && (bad_ || given_up_))) finish(panels);
    if (given_up_) return std::nullopt;
    abft::finding found = bad_.value_or(abft::finding{});
    found.bits = abft::k_seal_of_nothing;
    for (const std::uint64_t each : seals_) found.bits = abft::chained(found.bits, each) | 1;
    return found;
  }

 private:
  bool mine(index b) const { return b % own_.ranks == own_.rank; }
  // The first of this rank's blocks whose number in the whole matrix is above k.
  index first_block_after(index k) const { return k < own_.rank ? 0 : (k - own_.rank) / own_.ranks + 1; }
  index width_of(index i) const { return std::min(own_.block, own_.count() - i * own_.block); }

  matrix_view<S> buffer(index k) { return column_major(buffers_[k % 2].data(), m_, own_.count() + local_blocks_, std::max<index>(m_, 1)); }
  matrix_view<S> block(index k, index i) { return buffer(k).block(0, i * own_.block, m_, width_of(i)); }
  matrix_view<S> checksum(index k, index i) { return buffer(k).block(0, own_.count() + i, m_, 1); }
  bool is_checked(index i) const { return here_.is_protected() && finite_ && !std::isnan(norms_[at(i)]); }

  void load() {
    const matrix_view<S> home = buffer(0);
    if (own_.count() > 0) copy_alike<S>(A_, home.block(0, 0, m_, own_.count()));
    for (index i = 0; i < local_blocks_; ++i) {
      // From the input itself, so that the checksum covers the copy.
      const matrix_view<const S> from = A_.row_stride == 1 ? A_.block(0, i * own_.block, m_, width_of(i)) : block(0, i);
      if (here_.is_protected())
        norms_[at(i)] =
            host::encode_columns<S>(here_.run(), from, own_.global(i * own_.block), weights_.data() + i * own_.block, checksum(0, i).data);
      else
        std::fill_n(checksum(0, i).data, m_, S(0));
      seals_[at(i)] = 0;
    }
    // Inf and NaN of one rank reach all others by its panels.
    const std::int64_t odd = std::ranges::any_of(norms_, [](double each) { return std::isinf(each); }) ? 1 : 0;
    finite_ = true;
    for (const std::int64_t each : here_.gather(odd)) finite_ = finite_ && each == 0;
  }

  // Applies panel k to the rank's blocks first … last − 1 and to their checksums. R's rows go home.
  void update(orthogonal_factor<S>& Q, index k, index first, index last) {
    if (first >= last) return;
    const index top = k * own_.block;
    std::vector<typename orthogonal_factor<S>::range> ranges;
    for (index i = first; i < last; ++i) ranges.push_back({i * own_.block, width_of(i)});
    if (here_.is_protected())
      for (index i = first; i < last; i += k_most_block) ranges.push_back({own_.count() + i, std::min(k_most_block, last - i)});
    const matrix_view<S> from = buffer(k), to = buffer(k + 1);
    const auto below = [&](const matrix_view<S>& of) { return of.block(top, 0, m_ - top, of.columns); };
    Q.apply_to(true, {.view = below(from)}, below(to), ranges);
    if (here_.lost()) given_up_ = true;
    if constexpr (inject::active_injector::enabled) {
      for (index i = first; i < last; ++i)
        host::strike(here_.run().injector, site::trailing, {k * local_blocks_ + i, panels_of(steps_, own_.block) * local_blocks_, 0, 1},
                     &to(top, i * own_.block), m_ - top);
    }
    if ((k + 1) % 2 == 0) return;
    const index rows = std::min(own_.block, m_ - top);
    const auto go_home = [&](index column, index columns) {
      copy_alike<S>(to.block(top, column, rows, columns), from.block(top, column, rows, columns));
    };
    go_home(first * own_.block, std::min(last * own_.block, own_.count()) - first * own_.block);
    go_home(own_.count() + first, last - first);
  }

  // Factors block column k, which has had all its updates, at home; checks it and its checksum.
  own_panel<S> factor_panel(index k) {
    const index i = k / own_.ranks, top = k * own_.block, rows = m_ - top;
    const matrix_view<S> at_work = block(k, i).block(top, 0, rows, width_of(i)), at_home = block(0, i).block(top, 0, rows, width_of(i));
    const index count = std::min(rows, width_of(i));
    own_panel<S> made{.V = at_home.block(0, 0, rows, count), .tau = std::vector<S>(at(count))};
    factorization<S>(here_.run(), here_.on(), here_.scheme(), at_work, made.tau.data(), {}).run();
    if (here_.lost()) given_up_ = true;
    if (at_work.data != at_home.data) copy_alike<S>(at_work, at_home);
    if (is_checked(i)) {
      orthogonal_factor<S> Q(here_.run(), here_.on(), made.V, made.tau.data());
      Q.prepare(true);
      const typename orthogonal_factor<S>::range one{0, 1};
      const matrix_view<S> from = checksum(k, i).block(top, 0, rows, 1), to = checksum(k + 1, i).block(top, 0, rows, 1);
      Q.apply_to(true, {.view = from}, to, std::span(&one, 1));
      const matrix_view<S> home = checksum(0, i).block(top, 0, rows, 1);
      if (to.data != home.data) copy_alike<S>(to, home);
      if (here_.lost()) given_up_ = true;
    }
    judge(i, top);
    made.seal = host::seal_of_columns<S>(made.V, abft::seal_of(reals(made.tau.data()), count * k_reals<S>));
    return made;
  }

  // Compares a block with its checksum, and seals it.
  void judge(index i, index panel) {
    if (is_checked(i)) {
      const double residual =
          host::residual_of_columns<S>(here_.run(), block(0, i), panel, weights_.data() + i * own_.block, checksum(0, i).data);
      const abft::tiers limits = thresholds::residual<real_of<S>>(norms_[at(i)], k_reals<S> * m_, width_of(i), k_reals<S> * steps_);
      const index number = own_.global(i * own_.block) / own_.block;
      note(compare(here_.run(), {number, own_.blocks(), 0, 1}, residual, limits.wrong, "qr.columns", number));
    }
    seals_[at(i)] = host::seal_of_columns<S>(block(0, i), abft::k_seal_of_nothing);
    if constexpr (inject::active_injector::enabled)
      host::strike(here_.run().injector, site::r, {i, local_blocks_, 0, 1}, block(0, i).data, panel < 0 ? m_ : panel + 1);
  }

  void note(const abft::finding& found) {
    if (!passes(found) && !bad_) bad_ = found;
  }
  void note_seal(index number, bool alike) {
    here_.run().seen.checked(1);
    abft::finding found;
    if (!alike) {
      found.word = abft::k_fail;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      found.index = number;
      found.check = "qr.columns";
    }
    note(found);
  }

  void send(index k, const std::optional<own_panel<S>>& panel) {
    if (panel) std::copy(panel->tau.begin(), panel->tau.end(), made_.tau.begin() + k * own_.block);
    here_.send_panel(bad_.has_value() || given_up_, panel);
  }

  // Blocks that never become panels are compared here; all go to the caller's memory, by their seals.
  void finish(index panels) {
    for (index i = 0; i < local_blocks_; ++i) {
      const index number = own_.global(i * own_.block) / own_.block;
      if (number >= panels) {
        // The last update lies in the buffer of the last step; R's rows of every step are at home.
        judge(i, -1);
      }
      const matrix_view<S> to = made_.storage.view().block(0, i * own_.block, m_, width_of(i));
      copy_alike<S>(block(0, i), to);
      if (here_.is_protected()) note_seal(number, host::seal_of_columns<S>(to, abft::k_seal_of_nothing) == seals_[at(i)]);
    }
  }

  rank_call<S>& here_;
  const matrix_view<const S> A_;
  column_factors<S>& made_;
  const block_columns own_;
  const index m_, steps_, local_blocks_;
  core::aligned_buffer<S> buffers_[2];
  std::vector<double> weights_, norms_;
  std::vector<std::uint64_t> seals_;
  std::optional<abft::finding> bad_;  // the first that this rank found in this attempt
  bool finite_ = true;
  bool given_up_ = false;  // a panel or an update failed for good, and was recorded
};

void check_group_of_ranks(const execution& where, std::string_view token) {
  if (!where.group) throw invalid_argument_error(fmt::format("{}: group: expected one whose ranks have the columns, got none", token));
}

template <class S>
column_factors<S> factor_columns_of(matrix_view<const S> A, std::int64_t block, const execution& where, const call& now) {
  column_factors<S> made;
  made.where = where;
  const std::string part = to_token(problem_of<S>(A.rows, A.columns));
  check_group_of_ranks(where, part);
  group_operation<S> call(where, now, part, group_call::factor_columns, block);
  made.report = call.run([&] {
    if (block < 1 || block > k_most_block)
      throw invalid_argument_error(fmt::format("{}: block: expected 1 to {} columns, got {}", part, k_most_block, block));
    check_view(A, "A", part, 0);
    if (A.rows < 1) throw invalid_argument_error(fmt::format("{}: A: expected at least one row, got {}", part, A.rows));
    const std::int64_t shape[] = {A.rows, A.columns};
    std::int64_t n = 0;
    std::vector<std::int64_t> counts;
    for (const auto& each : call.over().gather(std::span<const std::int64_t>(shape))) {
      if (each[0] != A.rows)
        throw invalid_argument_error(fmt::format("{}: A: expected as many rows on all ranks, got {} and {}", part, A.rows, each[0]));
      counts.push_back(each[1]);
      n += each[1];
    }
    if (n < 1) throw invalid_argument_error(fmt::format("{}: A: expected at least one column on all ranks, got none", part));
    made.own = {n, block, static_cast<int>(call.over().size()), 0};
    for (std::size_t p = 0; p < counts.size(); ++p) {
      made.own.rank = static_cast<int>(p);
      if (made.own.count() != counts[p])
        throw invalid_argument_error(fmt::format("{}: A: expected {} of {} columns in blocks of {} on rank {} of {}, got {}", part,
                                                 made.own.count(), n, block, p, counts.size(), counts[p]));
    }
    made.own.rank = static_cast<int>(call.over().place());
    made.storage = matrix<S>(A.rows, A.columns, order::column_major);
    made.tau.assign(at(std::min(A.rows, n)), S(0));
    rank_call<S> here(call, {precision_of<real_of<S>>, A.rows, n, 1, is_complex<S>});
    here.work([&] {
      factorization_of_columns<S> work(here, A, made);
      call.attempt("qr.columns", [&](int) { return work.pass(); });
    });
  });
  return made;
}

// ---------------------------------------------------------------- Products with Q.

template <class S>
void check_factors(const column_factors<S>& of) {
  const std::string token = to_token(problem_of<S>(of.storage.rows(), of.own.columns));
  check_group_of_ranks(of.where, token);
  check_tau(std::span<const S>(of.tau), std::min(of.storage.rows(), of.own.columns), token);
  if (of.storage.columns() != of.own.count() || of.storage.order() != order::column_major)
    throw invalid_argument_error(
        fmt::format("{}: storage: expected {} columns in column-major order, got {}", token, of.own.count(), of.storage.columns()));
}

// Passes the panels of all ranks, in this or the reverse order, to use(k, V, tau). The next one is sent before.
template <class S, class Use>
void each_panel(rank_call<S>& here, const column_factors<S>& of, bool forwards, const Use& use) {
  const index m = of.storage.rows(), steps = static_cast<index>(of.tau.size()), panels = panels_of(steps, of.own.block);
  const auto number = [&](index s) { return forwards ? s : panels - 1 - s; };
  const auto panel = [&](index k) {
    std::optional<own_panel<S>> made;
    if (k % of.own.ranks != of.own.rank) return made;
    const index top = k * of.own.block, count = std::min(of.own.block, steps - top);
    made.emplace();
    made->V = of.storage.view().block(top, k / of.own.ranks * of.own.block, m - top, count);
    made->tau.assign(of.tau.begin() + top, of.tau.begin() + top + count);
    made->seal = host::seal_of_columns<S>(made->V, abft::seal_of(reals(made->tau.data()), count * k_reals<S>));
    return made;
  };
  std::optional<own_panel<S>> next = panel(number(0));
  here.send_panel(false, next);
  for (index s = 0; s < panels; ++s) {
    const panel_message<S> came = here.take_panel(number(s), m, of.own, steps);
    const std::optional<own_panel<S>> now = std::exchange(next, std::nullopt);
    if (s + 1 < panels) {
      next = panel(number(s + 1));
      here.send_panel(false, next);
    }
    use(number(s), now ? now->V : came.V(), came.tau);
    if (!now && here.is_protected() && came.V_seal() != came.seal)
      throw error(fmt::format("qr: the reflectors of panel {} have changed in memory while they were used", number(s)));
  }
}

// C ← op(Q) C on this rank's columns. `first_row(j)`: C's column j has only zeros from this row on; for the columns of Q.
template <class S>
void apply_panels(rank_call<S>& here, const column_factors<S>& of, bool transposed, matrix<S>& C, const block_columns* identity) {
  const index m = C.rows(), p = C.columns();
  const index width = identity != nullptr ? identity->block : std::min(k_most_block, std::max<index>(1, (p + 1) / 2));
  matrix<S> other(m, p, order::column_major);
  each_panel(here, of, transposed, [&](index k, const matrix_view<const S>& V, const std::vector<S>& tau) {
    if (p == 0) return;
    const index top = k * of.own.block;
    // A column e_j of the identity is not changed by the panels below its row.
    index first = 0;
    while (identity != nullptr && first < p && identity->global(first) < top) first += identity->block;
    if (first >= p) return;
    orthogonal_factor<S> Q(here.run(), here.on(), V, tau.data());
    Q.prepare(transposed);
    std::vector<typename orthogonal_factor<S>::range> ranges;
    for (index j = first; j < p; j += width) ranges.push_back({j, std::min(width, p - j)});
    const matrix_view<S> from = C.view().block(top, 0, m - top, p), to = other.view().block(top, 0, m - top, p);
    Q.apply_to(transposed, {.view = from}, to, ranges);
    copy_alike<S>(to.block(0, first, m - top, p - first), from.block(0, first, m - top, p - first));
  });
}

template <class S>
computed<S> product(const column_factors<S>& of, bool transposed, matrix_view<const S> C, const call& now) {
  check_factors(of);
  const index m = of.storage.rows();
  const problem size{precision_of<real_of<S>>, m, of.own.columns, 1, is_complex<S>};
  group_operation<S> call(of.where, now, to_token(size), transposed ? group_call::apply_transposed : group_call::apply, of.own.columns);
  computed<S> made;
  made.report = call.run([&] {
    check_view(C, "C", to_token(size), 0);
    if (C.rows != m) throw invalid_argument_error(fmt::format("{}: C: expected {} rows, got {}", to_token(size), m, C.rows));
    made.values = packed_rows(C, -1);
    rank_call<S> here(call, size);
    here.check_ranks(of.own);
    here.work([&] { apply_panels(here, of, transposed, made.values, nullptr); });
  });
  return made;
}

template <class S>
computed<S> columns_of_q(const column_factors<S>& of, const call& now) {
  check_factors(of);
  const index m = of.storage.rows();
  const problem size{precision_of<real_of<S>>, m, of.own.columns, 1, is_complex<S>};
  const block_columns mine = of.q_columns();
  group_operation<S> call(of.where, now, to_token(size), group_call::q_columns, of.own.columns);
  computed<S> made;
  made.report = call.run([&] {
    made.values = matrix<S>(m, mine.count(), order::column_major);
    for (index j = 0; j < mine.count(); ++j) made.values(mine.global(j), j) = 1;
    rank_call<S> here(call, size);
    here.check_ranks(of.own);
    here.work([&] { apply_panels(here, of, false, made.values, &mine); });
  });
  return made;
}

// ---------------------------------------------------------------- Least squares.

// X ← R⁻¹ Y on this rank's columns, with R's block columns from their owners, the last first. Computed in double, except for the solves
// with the diagonal blocks. `check`: Σ_i a_i Y_i = Σ_j (aᴴR)_j X_j for a random a, which covers all steps; a finding.
template <class S>
class back_substitution {
 public:
  using wide = wide_of<S>;
  back_substitution(rank_call<S>& here, const column_factors<S>& of, const matrix<S>& Y) : here_(here), of_(of), Y_(Y) {}

  abft::finding pass(matrix<S>& X) {
    const index n = of_.own.columns, p = Y_.columns(), block = of_.own.block, panels = panels_of(n, block);
    std::vector<wide> y(at(n * p)), sums(at(p), wide(0)), g(at(block));
    std::vector<double> sizes(at(p), 0.0), of_row(at(n));
    std::vector<double> a(at(n));
    for (index i = 0; i < n; ++i) a[at(i)] = random_signed(k_rank_stream, static_cast<std::uint64_t>(i));
    for (index j = 0; j < p; ++j) {
      for (index i = 0; i < n; ++i) {
        y[at(i + j * n)] = static_cast<wide>(Y_(i, j));
        sums[at(j)] -= y[at(i + j * n)] * a[at(i)];
        sizes[at(j)] += std::abs(a[at(i)]) * size_of_number(y[at(i + j * n)]);
      }
    }
    refused_ = -1;
    send(panels - 1);
    for (index k = panels - 1; k >= 0; --k) {
      const index top = k * block, width = std::min(block, n - top);
      const matrix_message<S> R = here_.take_matrix(static_cast<int>(k % of_.own.ranks), top + width, width);
      if (k > 0) send(k - 1);
      if (R.refused >= 0) refused_ = R.refused;  // all messages are taken before the call ends, so that all ranks see it
      if (p == 0 || refused_ >= 0) continue;
      solve_block(R.view(), top, width, y, X);
      std::vector<wide> x(at(width * p));
      for (index j = 0; j < p; ++j)
        for (index i = 0; i < width; ++i) x[at(i + j * width)] = static_cast<wide>(X(top + i, j));
      for (index l = 0; l < width; ++l) {
        wide sum = 0;
        double size = 0;
        for (index i = 0; i <= top + l; ++i) {
          sum += static_cast<wide>(R.view()(i, l)) * a[at(i)];
          size += std::abs(a[at(i)]) * size_of_number(R.view()(i, l));
        }
        for (index j = 0; j < p; ++j) {
          sums[at(j)] += times(sum, x[at(l + j * width)]);
          sizes[at(j)] += size * size_of_number(x[at(l + j * width)]);
        }
      }
      if (top > 0) host::subtract_columns<S>(here_.run(), R.view().block(0, 0, top, width), p, x.data(), width, y.data(), n);
    }
    return refused_ >= 0 ? abft::finding{} : judge(sums, sizes);
  }
  // A column that depends on the others, as the last pass has seen; −1: there is none.
  index refused() const { return refused_; }

 private:
  void solve_block(const matrix_view<const S>& R, index top, index width, const std::vector<wide>& y, matrix<S>& X) {
    const index n = of_.own.columns, p = Y_.columns();
    matrix<S> right(width, p, order::column_major), found(width, p, order::column_major);
    for (index j = 0; j < p; ++j)
      for (index i = 0; i < width; ++i) right(i, j) = static_cast<S>(y[at(top + i + j * n)]);
    solve_triangle<S>(here_.run(), here_.on(), false, R.block(top, 0, width, width), std::as_const(right).view(), found.view());
    for (index j = 0; j < p; ++j)
      for (index i = 0; i < width; ++i) X(top + i, j) = found(i, j);
  }

  // Every solve of a diagonal block, and every rounding of y to S, errs like a substitution of n columns in S.
  abft::finding judge(const std::vector<wide>& sums, const std::vector<double>& sizes) {
    abft::finding worst;
    if (!here_.is_protected()) return worst;
    for (std::size_t j = 0; j < sums.size(); ++j) {
      // Sums that leave the range of numbers are not compared.
      if (!std::isfinite(sizes[j])) continue;
      const index number = static_cast<index>(j);
      const abft::finding found = compare(here_.run(), {number, static_cast<index>(sums.size()), 0, 1}, size_of_number(sums[j]),
                                          thresholds::solve<real_of<S>>(sizes[j], of_.own.columns), "qr.substitution", number);
      if (!passes(found) && passes(worst)) worst = found;
    }
    return worst;
  }

  void send(index k) {
    if (k % of_.own.ranks != of_.own.rank) return here_.send_matrix({}, -1);
    const index block = of_.own.block, top = k * block, width = std::min(block, of_.own.columns - top);
    const matrix_view<const S> R = of_.storage.view().block(0, k / of_.own.ranks * block, top + width, width);
    index refused = -1;
    for (index l = width - 1; l >= 0; --l) {
      double most = 0;
      for (index i = 0; i <= top + l; ++i) most = std::max(most, size_of_number(R(i, l)));
      const double pivot = size_of_number(R(top + l, l));
      if (pivot <= thresholds::least_pivot<real_of<S>>(of_.own.columns) * most) refused = top + l;
    }
    here_.send_matrix(R, refused);
  }

  rank_call<S>& here_;
  const column_factors<S>& of_;
  const matrix<S>& Y_;
  index refused_ = -1;
};

template <class S>
computed<S> solution_of(const column_factors<S>& of, matrix_view<const S> B, const call& now) {
  check_factors(of);
  const index m = of.storage.rows(), n = of.own.columns;
  const problem size{precision_of<real_of<S>>, m, n, 1, is_complex<S>};
  group_operation<S> call(of.where, now, to_token(size), group_call::solve, n);
  computed<S> made;
  index refused = -1;
  made.report = call.run([&] {
    check_view(B, "B", to_token(size), 0);
    if (m < n)
      throw invalid_argument_error(fmt::format("{}: A: expected at least as many rows as columns for least squares", to_token(size)));
    if (B.rows != m) throw invalid_argument_error(fmt::format("{}: B: expected {} rows, got {}", to_token(size), m, B.rows));
    rank_call<S> here(call, size);
    here.check_ranks(of.own);
    here.work([&] {
      matrix<S> Y = packed_rows(B, -1);
      apply_panels(here, of, true, Y, nullptr);
      made.values = matrix<S>(n, B.columns, order::column_major);
      back_substitution<S> work(here, of, Y);
      call.attempt("qr.substitution", [&](int) { return std::optional(work.pass(made.values)); });
      refused = work.refused();
    });
  });
  if (refused >= 0)
    throw rank_deficient_error(
        fmt::format("{}: expected columns of full rank for least squares, got column {} of R without a pivot", to_token(size), refused));
  return made;
}

}  // namespace

inline namespace abi_1 {

#define BALLAST_DEFINE(S)                                                                                                 \
  column_factors<S> factor_columns(matrix_view<const S> A, std::int64_t block, const execution& where, const call& now) { \
    return factor_columns_of<S>(A, block, where, now);                                                                    \
  }
BALLAST_DEFINE(float)
BALLAST_DEFINE(double)
BALLAST_DEFINE(std::complex<float>)
BALLAST_DEFINE(std::complex<double>)
#undef BALLAST_DEFINE

template <class T>
matrix<T> column_factors<T>::r() const {
  matrix<T> made(std::min(storage.rows(), own.columns), storage.columns(), order::column_major);
  for (index j = 0; j < made.columns(); ++j) {
    const index end = std::min(made.rows(), own.global(j) + 1);
    for (index i = 0; i < end; ++i) made(i, j) = storage(i, j);
  }
  return made;
}

template <class T>
block_columns column_factors<T>::q_columns() const {
  return {std::min(storage.rows(), own.columns), own.block, own.ranks, own.rank};
}

template <class T>
computed<T> column_factors<T>::q(const call& now) const {
  return columns_of_q(*this, now);
}

template <class T>
computed<T> column_factors<T>::apply(matrix_view<const T> C, const call& now) const {
  return product(*this, false, C, now);
}

template <class T>
computed<T> column_factors<T>::apply_transposed(matrix_view<const T> B, const call& now) const {
  return product(*this, true, B, now);
}

template <class T>
computed<T> column_factors<T>::solve(matrix_view<const T> B, const call& now) const {
  return solution_of(*this, B, now);
}

template class column_factors<float>;
template class column_factors<double>;
template class column_factors<std::complex<float>>;
template class column_factors<std::complex<double>>;

}  // namespace abi_1
}  // namespace ballast::qr
