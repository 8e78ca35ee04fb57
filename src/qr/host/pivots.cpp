// The choice of the columns for a QR with column pivoting.
// Layer: backend (host). See pivots.hpp.
#include "qr/host/pivots.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "abft/threshold.hpp"
#include "core/aligned_buffer.hpp"
#include "core/at.hpp"
#include "core/memory.hpp"
#include "core/parallel.hpp"
#include "inject/injector.hpp"
#include "qr/checks/slabs.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/host/kernels.hpp"
#include "qr/sites.hpp"
#include "qr/thresholds.hpp"

namespace ballast::qr::host {

using core::at;

namespace {

constexpr index k_pivot_tile = 256;   // columns of a tile of AᵀA; fixed, so that results do not depend on the number of threads
constexpr index k_pivot_block = 128;  // pivots between two updates of AᵀA
constexpr index k_projected = 64;     // columns of a panel that is projected out
constexpr index k_stored_ratio = 4;   // AᵀA is stored for up to so many times as many columns as rows
constexpr index k_transposed = 8;     // rows that are copied to the other half of AᵀA at a time: a line of the cache
constexpr int k_apart = 500;          // exponents of two apart: the square of a column is nothing beside the other's

// The columns that are not chosen yet, in double: Wide is double or std::complex<double>. They are kept near norm 1, each with an exponent:
// column c stands for 2^exponent_c · W(:, c). That changes no reflector, and nothing overflows.
template <class Wide>
class remaining_columns {
 public:
  template <class S>
  remaining_columns(const context& run, const matrix_view<const S>& A)
      : run_(run), kernels_(kernels_of<Wide>(run)), ld_(A.rows), W_(core::checked_product(A.rows, A.columns)) {
    rows_ = A.rows;
    columns_ = A.columns;
    exponents_.assign(at(columns_), 0);
    squares_.resize(at(columns_));
    core::parallel_for(run.threads, columns_, [&](index c, int) {
      for (index i = 0; i < rows_; ++i) column(c)[i] = static_cast<Wide>(A(i, c));
    });
  }

  index rows() const { return rows_; }
  index columns() const { return columns_; }
  index ld() const { return ld_; }
  Wide* column(index c) { return W_.data() + top_ + (first_ + c) * ld_; }
  int exponent(index c) const { return exponents_[at(first_ + c)]; }
  double square(index c) const { return squares_[at(first_ + c)]; }

  // Brings all columns to norms in [1, 2), except zeros.
  void equilibrate() {
    core::parallel_for(run_.threads, columns_, [&](index c, int) {
      Wide* const w = column(c);
      const column_size size = size_of(kernels_, rows_, w);
      squares_[at(first_ + c)] = size.norm * size.norm;
      if (size.exponent == 0) return;
      // Two factors, since the reciprocal of a subnormal number is not representable.
      const double half = std::ldexp(1.0, -size.exponent / 2), rest = std::ldexp(1.0, -size.exponent - (-size.exponent / 2));
      for (index i = 0; i < rows_; ++i) w[i] = w[i] * half * rest;
      exponents_[at(first_ + c)] += size.exponent;
    });
  }

  // Moves column from[c] to position c.
  void permute(const core::vector<index>& from) {
    core::aligned_buffer<Wide> moved(rows_ * columns_);
    core::vector<int> exponents(at(columns_));
    core::parallel_for(run_.threads, columns_, [&](index c, int) {
      std::copy_n(column(from[at(c)]), rows_, moved.data() + c * rows_);
      exponents[at(c)] = exponent(from[at(c)]);
    });
    core::parallel_for(run_.threads, columns_, [&](index c, int) { std::copy_n(moved.data() + c * rows_, rows_, column(c)); });
    std::copy(exponents.begin(), exponents.end(), exponents_.begin() + first_);
  }

  // Reflects the first `count` columns to a triangle, and drops them and its rows.
  void project(index count) {
    core::aligned_buffer<Wide> V1(k_projected * k_projected), T(k_projected * k_projected), tau(k_projected);
    for (index first = 0; first < count; first += k_projected) {
      const index width = std::min(k_projected, count - first);
      Wide* const panel = column(first) + first;
      kernels_.factor_panel(rows_ - first, width, panel, ld_, tau.data(), T.data(), run_.threads, true, true);
      copy_triangle(width, panel, ld_, V1.data());
      const block_reflector<Wide> H{rows_ - first, width, V1.data(), panel + width, ld_, T.data()};
      const index after = first + width, others = columns_ - after;
      core::parallel_for(run_.threads, (others + k_pivot_tile - 1) / k_pivot_tile, [&](index t, int) {
        const index c = after + t * k_pivot_tile, several = std::min(k_pivot_tile, columns_ - c);
        core::aligned_buffer<Wide> product(width * several);
        kernels_.product(H, several, column(c) + first, ld_, product.data());
        kernels_.update(H, true, several, product.data(), column(c) + first, ld_);
      });
    }
    top_ += count;
    first_ += count;
    rows_ -= count;
    columns_ -= count;
  }

 private:
  const context& run_;
  const kernels<Wide>& kernels_;
  const index ld_;
  index top_ = 0, first_ = 0, rows_ = 0, columns_ = 0;
  core::aligned_buffer<Wide> W_;
  core::vector<int> exponents_;
  core::vector<double> squares_;
};

// Writes the order, and has the sites of faults.
class chosen_order {
 public:
  chosen_order(const context& run, std::span<index> order, index steps) : run_(run), order_(order), steps_(steps) {
    std::iota(order.begin(), order.end(), index{0});
  }
  index count() const { return count_; }
  index steps() const { return steps_; }
  bool done() const { return count_ >= steps_; }

  // The norms that decide on the next pivot.
  void strike_norms([[maybe_unused]] double* norms, [[maybe_unused]] index count) {
    if constexpr (inject::active_injector::enabled) run_.injector.strike(site::column_norm, {count_, steps_, 0, 1}, norms, count);
  }

  // Takes the column at position `best` as the next one; it changes places with the first one that is not chosen. Returns the position,
  // which a fault cannot move out of the remaining ones.
  index take(index best) {
    if constexpr (inject::active_injector::enabled) run_.injector.strike(site::pivot, {count_, steps_, 0, 1}, &best, 1);
    if (best < count_ || best >= static_cast<index>(order_.size())) best = count_;
    std::swap(order_[at(count_)], order_[at(best)]);
    ++count_;
    return best;
  }

 private:
  const context& run_;
  const std::span<index> order_;
  const index steps_;
  index count_ = 0;
};

// The textbook's way: the norms of all remaining columns, the longest one, its reflector, applied to the others one after the other.
template <class Wide>
void choose_plainly(const context& run, remaining_columns<Wide>& W, chosen_order& order) {
  const kernels<Wide>& arithmetic = kernels_of<Wide>(run);
  W.equilibrate();
  const index m = W.rows(), n = W.columns();
  core::vector<index> column(at(n));
  std::iota(column.begin(), column.end(), index{0});
  core::vector<double> norms;
  while (!order.done()) {
    const index k = order.count();
    int most = std::numeric_limits<int>::min();
    for (index c = k; c < n; ++c) most = std::max(most, W.exponent(column[at(c)]));
    norms.assign(at(n - k), 0.0);
    for (index c = k; c < n; ++c) {
      const column_size size = size_of(arithmetic, m - k, W.column(column[at(c)]) + k);
      norms[at(c - k)] = std::ldexp(size.norm, size.exponent + W.exponent(column[at(c)]) - most);
    }
    order.strike_norms(norms.data(), n - k);
    const index best = order.take(k + (std::max_element(norms.begin(), norms.end()) - norms.begin()));
    std::swap(column[at(k)], column[at(best)]);
    Wide* const v = W.column(column[at(k)]) + k;
    const Wide tau = make_reflector(v[0], m - k - 1, v + 1);
    for (index c = k + 1; c < n; ++c) {
      Wide* const w = W.column(column[at(c)]) + k;
      Wide sum = w[0];
      for (index i = 1; i < m - k; ++i) sum += times(conjugate(v[i]), w[i]);
      sum = times(conjugate(tau), sum);
      w[0] -= sum;
      for (index i = 1; i < m - k; ++i) w[i] -= times(sum, v[i]);
    }
  }
}

// Cholesky with pivoting of G = WᴴW, the columns of W being near norm 1: the pivot of step k is the largest 4^exponent · (G − L Lᴴ)_cc. It
// ends where that number comes near the rounding of any remaining column.
template <class Wide>
class gram_round {
 public:
  gram_round(const context& run, remaining_columns<Wide>& W, chosen_order& order)
      : run_(run),
        kernels_(kernels_of<Wide>(run)),
        W_(W),
        order_(order),
        n_(W.columns()),
        stored_(n_ <= k_stored_ratio * W.rows()),
        block_(std::min({stored_ ? k_pivot_block : W.rows(), n_, order.steps() - order.count()})),
        L_(core::checked_product(n_, block_)),
        transposed_(stored_ ? core::checked_product(n_, block_) : 0),
        column_(at(n_)),
        slot_(at(n_)),
        rest_(at(n_)),
        initial_(at(n_)),
        scale_(at(n_)) {
    std::iota(column_.begin(), column_.end(), index{0});
    slot_ = column_;
    int most = std::numeric_limits<int>::min();
    for (index c = 0; c < n_; ++c) {
      if (W.square(c) > 0) most = std::max(most, W.exponent(c));
    }
    for (index c = 0; c < n_; ++c) {
      rest_[at(c)] = W.square(c);
      const bool counts = W.square(c) > 0 && W.exponent(c) - most >= -k_apart;  // a column of zeros has no exponent
      scale_[at(c)] = counts ? std::ldexp(1.0, 2 * (W.exponent(c) - most)) : 0;
      initial_[at(c)] = rest_[at(c)] * scale_[at(c)];
      any_ |= rest_[at(c)] > 0;
    }
    if (any_ && stored_) multiply();
  }

  // Returns false if all remaining columns are zero.
  bool choose() {
    if (!any_) return false;
    while (!order_.done() && step()) {
      if (stored_ && in_block_ == block_ && !order_.done()) update();
    }
    return true;
  }

  // The pivots of this round, and the columns of W in their new order.
  index count() const { return count_; }
  const core::vector<index>& columns() const { return column_; }

 private:
  index base() const { return count_ - in_block_; }  // pivots before this block
  Wide* gram(index r, index c) { return G_.data() + r + c * n_; }

  // Calls body(row tile, column tile) for the tiles on and below the diagonal of the columns from `first` on.
  template <class Body>
  void each_tile(index first, Body&& body) {
    const index tiles = (n_ - first + k_pivot_tile - 1) / k_pivot_tile;
    core::vector<std::pair<index, index>> all;
    for (index j = 0; j < tiles; ++j) {
      for (index i = j; i < tiles; ++i) all.emplace_back(first + i * k_pivot_tile, first + j * k_pivot_tile);
    }
    core::parallel_for(run_.threads, static_cast<index>(all.size()), [&](index t, int) {
      const auto [r, c] = all[at(t)];
      const index rows = std::min(k_pivot_tile, n_ - r), columns = std::min(k_pivot_tile, n_ - c);
      body(r, c, rows, columns);
      if (r == c) return;
      for (index i = 0; i < rows; i += k_transposed) {
        for (index j = 0; j < columns; ++j) {
          for (index l = i; l < std::min(rows, i + k_transposed); ++l) *gram(c + j, r + l) = conjugate(*gram(r + l, c + j));
        }
      }
    });
  }

  void multiply() {
    G_ = core::aligned_buffer<Wide>(core::checked_product(n_, n_));
    each_tile(0, [&](index r, index c, index rows, index columns) {
      kernels_.cross_product(W_.rows(), rows, columns, W_.column(r), W_.ld(), W_.column(c), W_.ld(), gram(r, c), n_);
    });
  }

  // Column s of G, from row `first` on.
  void load(index s, index first, Wide* to) {
    if (stored_) {
      std::copy_n(gram(first, s), n_ - first, to + first);
      return;
    }
    std::fill_n(to, n_, Wide(0));
    const Wide* const w = W_.column(s);
    core::parallel_for(run_.threads, (n_ + k_pivot_tile - 1) / k_pivot_tile, [&](index t, int) {
      const index c = t * k_pivot_tile;
      kernels_.dot(W_.rows(), std::min(k_pivot_tile, n_ - c), W_.column(c), W_.ld(), 1, w, W_.rows(), to + c, n_);
    });
  }

  // Takes one pivot. Returns false if the round ends here.
  bool step() {
    double most = -1, largest = 0;
    index best = count_;
    sizes_.resize(at(n_ - count_));
    for (index p = count_; p < n_; ++p) {
      const std::size_t s = at(slot_[at(p)]);
      sizes_[at(p - count_)] = rest_[s] * scale_[s];
      largest = std::max(largest, initial_[s]);
    }
    order_.strike_norms(sizes_.data(), n_ - count_);
    for (index p = count_; p < n_; ++p) {
      if (sizes_[at(p - count_)] > most) most = sizes_[at(p - count_)], best = p;
    }
    if (count_ > 0 && !(most >= thresholds::k_least_rest * largest && most > 0)) return false;
    const index before = order_.count() - count_, first = base();
    best = order_.take(before + best) - before;
    std::swap(column_[at(count_)], column_[at(best)]);
    std::swap(slot_[at(count_)], slot_[at(best)]);
    if (stored_) swaps_.emplace_back(count_, best);
    const index s = slot_[at(count_++)];
    Wide* const c = L_.data() + in_block_ * n_;
    load(s, first, c);
    core::vector<Wide> z(at(in_block_));
    for (index t = 0; t < in_block_; ++t) z[at(t)] = conjugate(L_[s + t * n_]);
    if (in_block_ > 0) kernels_.subtract(n_ - first, in_block_, L_.data() + first, n_, 1, z.data(), in_block_, c + first, n_);
    const double root = std::sqrt(rest_[at(s)]);
    for (index i = first; i < n_; ++i) {
      c[i] /= root;
      rest_[at(i)] -= square_of(c[i]);
    }
    if (stored_) {
      for (index i = first; i < n_; ++i) transposed_[in_block_ + i * block_] = conjugate(c[i]);
    }
    ++in_block_;
    return true;
  }

  // Brings G, L and the norms in the order of the positions, and subtracts L Lᴴ of the block.
  void update() {
    for (const auto& [a, b] : swaps_) {
      if (a == b) continue;
      std::swap_ranges(gram(base(), a), gram(base(), a) + n_ - base(), gram(base(), b));
      std::swap_ranges(transposed_.data() + a * block_, transposed_.data() + (a + 1) * block_, transposed_.data() + b * block_);
      for (index t = 0; t < in_block_; ++t) std::swap(L_[a + t * n_], L_[b + t * n_]);
      std::swap(rest_[at(a)], rest_[at(b)]);
      std::swap(initial_[at(a)], initial_[at(b)]);
      std::swap(scale_[at(a)], scale_[at(b)]);
    }
    core::parallel_for(run_.threads, (n_ - count_ + k_pivot_tile - 1) / k_pivot_tile, [&](index t, int) {
      for (index c = count_ + t * k_pivot_tile; c < std::min(n_, count_ + (t + 1) * k_pivot_tile); ++c) {
        for (const auto& [a, b] : swaps_) std::swap(*gram(a, c), *gram(b, c));
      }
    });
    std::iota(slot_.begin(), slot_.end(), index{0});
    each_tile(count_, [&](index r, index c, index rows, index columns) {
      kernels_.subtract_product(rows, columns, in_block_, L_.data() + r, n_, transposed_.data() + c * block_, block_, gram(r, c), n_);
    });
    swaps_.clear();
    in_block_ = 0;
  }

  const context& run_;
  const kernels<Wide>& kernels_;
  remaining_columns<Wide>& W_;
  chosen_order& order_;
  const index n_;
  const bool stored_;  // G is stored; else its columns are computed when they are needed, and L is kept for all pivots
  const index block_;
  bool any_ = false;
  core::aligned_buffer<Wide> G_, L_, transposed_;  // n × n; n × block; its conjugate transpose
  core::vector<index> column_, slot_;              // by position: the column of W, and of G and L
  core::vector<double> rest_, initial_, scale_;    // by column of G: the diagonal of G − L Lᴴ, of G, and 4^exponent
  core::vector<double> sizes_;                     // 4^exponent · rest of the remaining columns, by position
  core::vector<std::pair<index, index>> swaps_;    // swapped positions of this block
  index count_ = 0, in_block_ = 0;                 // pivots of this round, and of this block
};

}  // namespace

template <class S>
void choose_pivots(const context& run, const matrix_view<const S>& A, std::span<index> order, bool plainly) {
  chosen_order made(run, order, std::min(A.rows, A.columns));
  remaining_columns<wide_of<S>> W(run, A);
  if (run.which == backend::reference || plainly) return choose_plainly(run, W, made);
  while (!made.done()) {
    W.equilibrate();
    gram_round<wide_of<S>> round(run, W, made);
    if (!round.choose() || made.done()) return;
    W.permute(round.columns());
    W.project(round.count());
  }
}

// ------------------------------------------------------------------------------------------------------------------------- the check

index first_repeated(std::span<const index> order) {
  core::vector<bool> seen(order.size(), false);
  for (std::size_t k = 0; k < order.size(); ++k) {
    const index j = order[k];
    if (j < 0 || j >= static_cast<index>(order.size()) || seen[at(j)]) return static_cast<index>(k);
    seen[at(j)] = true;
  }
  return -1;
}

template <class S>
pivot_sums measure_pivots(const context& run, const matrix_view<const S>& R, index m) {
  const index n = R.columns, steps = R.rows;
  const kernels<S>& arithmetic = kernels_of<S>(run);
  core::vector<column_size> sizes(at(n));
  core::vector<pivot_sums> found(at((n + k_pivot_tile - 1) / k_pivot_tile));
  const auto stored = [&](index j) { return std::min(j + 1, steps); };
  core::parallel_for(run.threads, n, [&](index j, int) { sizes[at(j)] = size_of(arithmetic, stored(j), R.data + j * R.column_stride); });
  // Each tile reads the diagonal itself, so that a number that is read wrongly does not hide a column in all tiles.
  core::parallel_for(run.threads, static_cast<index>(found.size()), [&](index t, int) {
    pivot_sums& worst = found[at(t)];
    core::vector<double> diagonal(at(steps));
    for (index k = 0; k < steps; ++k) diagonal[at(k)] = size_of_number(R(k, k));
    for (index j = t * k_pivot_tile; j < std::min(n, (t + 1) * k_pivot_tile) && std::isfinite(worst.residual); ++j) {
      const S* const r = R.data + j * R.column_stride;
      const int e = std::clamp(sizes[at(j)].exponent, -1000, 1000);
      const double scale = std::ldexp(1.0, -e);
      double sum = 0;
      for (index k = stored(j); k-- > 0;) {
        const double pivot = diagonal[at(k)] * scale;
        sum += square_of(static_cast<wide_of<S>>(r[k]) * scale);
        if (sum <= pivot * pivot || k == j) continue;
        const double own = std::ldexp(sizes[at(j)].norm, sizes[at(j)].exponent - e);
        const double other = std::ldexp(sizes[at(k)].norm, std::min(sizes[at(k)].exponent - e, 1000));
        const double residual = std::sqrt(sum) - pivot, threshold = thresholds::pivot<real_of<S>>(pivot, own + other, k_reals<S> * m);
        if (residual * worst.threshold <= worst.residual * threshold) continue;
        worst = {residual, threshold, j};
        if (!std::isfinite(residual)) break;  // no later one may replace it
      }
    }
  });
  pivot_sums made;
  for (const pivot_sums& each : found) {
    if (!std::isfinite(made.residual)) break;
    if (!(each.residual * made.threshold <= made.residual * each.threshold)) made = each;
  }
  return made;
}

template <class S>
index first_moved(const context& run, const matrix_view<const S>& A, std::span<const index> order, const matrix_view<const S>& P) {
  core::vector<char> differs(at(P.columns), 0);
  core::parallel_for(run.threads, P.columns, [&](index j, int) {
    bool same = true;
    for (index i = 0; i < P.rows; ++i) same &= same_bits<S>(P(i, j), A(i, order[at(j)]));
    differs[at(j)] = same ? 0 : 1;
  });
  const auto found = std::find(differs.begin(), differs.end(), 1);
  return found == differs.end() ? -1 : found - differs.begin();
}

template <class S>
void copy_columns(const context& run, const matrix_view<const S>& A, std::span<const index> order, const matrix_view<S>& to, bool back) {
  core::parallel_for(run.threads, A.columns, [&](index j, int) {
    const index from = back ? j : order[at(j)], into = back ? order[at(j)] : j;
    for (index i = 0; i < A.rows; ++i) to(i, into) = A(i, from);
  });
}

// -------------------------------------------------------------------------------------------------------------------------- the rank

namespace {

// The vector x of norm 1 for which ‖xᴴR‖ is near the largest or smallest singular value of a leading block of R, and that number. The next
// block's vector is (s x, c), with s² + |c|² = 1 and real s.
template <class Wide>
struct singular_estimate {
  core::vector<Wide> x;
  double scale = 1;  // x is stored without it
  double value = 0;  // ‖xᴴR‖
};

// Finds (s, c) with s² + c² = 1 that extends the estimate by a column (w, gamma) of R so that s² σ² + (s α + c γ)², α = |xᴴw|, γ = |gamma|,
// is largest or smallest. That number is an eigenvalue of the 2 × 2 matrix [σ² + α², αγ; αγ, γ²].
struct extension {
  double s = 1, c = 0, value = 0;
};
extension extend(double sigma, double alpha, double gamma, bool largest) {
  const double size = std::max({sigma, alpha, gamma});
  if (!(size > 0)) return {0, 1, 0};
  sigma /= size;
  alpha /= size;
  gamma /= size;
  const double a = sigma * sigma + alpha * alpha, b = alpha * gamma, d = gamma * gamma;
  const double half = (a - d) / 2, root = std::hypot(half, b), top = (a + d) / 2 + root;
  // The eigenvector of the largest eigenvalue, by the form without cancellation; the other one is orthogonal to it.
  double s = half >= 0 ? half + root : b, c = half >= 0 ? b : root - half;
  const double norm = std::hypot(s, c);
  if (norm > 0) {
    s /= norm;
    c /= norm;
  } else {
    s = 1;
    c = 0;
  }
  if (largest) return {s, c, size * std::sqrt(top)};
  // The determinant is σ²γ².
  return {-c, s, size * sigma * gamma / std::sqrt(top)};
}

// x / |x|; 1 for 0.
template <class Wide>
Wide phase_of(const Wide& x) {
  const double size = size_of_number(x);
  return size > 0 ? x / size : Wide(1);
}

template <class Wide>
void grow(singular_estimate<Wide>& of, const Wide* w, const Wide& gamma, bool largest) {
  Wide alpha = 0;
  for (std::size_t i = 0; i < of.x.size(); ++i) alpha += times(conjugate(of.x[i]), w[i]);
  const extension by = extend(of.value, std::abs(of.scale) * size_of_number(alpha), size_of_number(gamma), largest);
  // conj(c) gamma gets the phase of s xᴴw.
  const Wide phase = times(phase_of(gamma), conjugate(phase_of(Wide(of.scale * alpha))));
  of.scale *= by.s;
  if (std::abs(of.scale) < 0x1p-300) {  // before it loses digits
    for (Wide& each : of.x) each *= of.scale;
    of.scale = 1;
  }
  of.x.push_back(by.c / of.scale * phase);
  of.value = by.value;
}

}  // namespace

template <class S>
triangle_rank rank_of(const matrix_view<const S>& R, double rcond) {
  const index n = std::min(R.rows, R.columns);
  triangle_rank made;
  using wide = wide_of<S>;
  if (n == 0 || !(size_of_number(R(0, 0)) > 0)) return made;
  const int e = exponent_of(static_cast<wide>(R(0, 0)));
  core::vector<wide> w(at(n));
  singular_estimate<wide> small, large;
  for (index k = 0; k < n; ++k) {
    for (index i = 0; i <= k; ++i) w[at(i)] = scaled(static_cast<wide>(R(i, k)), -e);
    if (k == 0) {
      small.x = large.x = {wide(1)};
      small.value = large.value = size_of_number(w[0]);
    } else {
      grow(small, w.data(), w[at(k)], false);
      grow(large, w.data(), w[at(k)], true);
    }
    if (!(small.value > rcond * large.value)) return made;
    made = {k + 1, large.value / small.value};
  }
  return made;
}

#define BALLAST_INSTANTIATE(S)                                                                                                     \
  template void choose_pivots<S>(const context&, const matrix_view<const S>&, std::span<index>, bool);                             \
  template pivot_sums measure_pivots<S>(const context&, const matrix_view<const S>&, index);                                       \
  template index first_moved<S>(const context&, const matrix_view<const S>&, std::span<const index>, const matrix_view<const S>&); \
  template void copy_columns<S>(const context&, const matrix_view<const S>&, std::span<const index>, const matrix_view<S>&, bool); \
  template triangle_rank rank_of<S>(const matrix_view<const S>&, double);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr::host
