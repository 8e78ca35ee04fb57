// Panel factorizations on the CPU: recursive, TSQR, and the reconstruction of reflectors from Q.
// Layer: backend (cpu).
#include "qr/cpu/panel.hpp"

#include <algorithm>
#include <cmath>

#include "abft/threshold.hpp"
#include "core/aligned_buffer.hpp"
#include "core/blas.hpp"
#include "core/memory.hpp"
#include "core/parallel.hpp"
#include "qr/cpu/vector.hpp"

namespace ballast::qr::cpu {

namespace {

constexpr index k_long_run = 128, k_short_run = 32;

// False if a squared norm has lost digits to underflow, or has overflowed: make_reflector, which scales, then computes the reflector.
template <class R>
bool comfortable(R squares) {
  constexpr R low = sizeof(R) == 4 ? R(0x1p-80) : static_cast<R>(0x1p-900);
  constexpr R high = sizeof(R) == 4 ? R(0x1p100) : static_cast<R>(0x1p900);
  return squares >= low && squares <= high;
}

// Factors at most k_base columns, with one pass over them for each reflector.
template <class S>
void base_panel(index m, index w, S* A, index lda, S* tau, S* T, index ldt) {
  using real = real_of<S>;
  S g[vector::k_base<S>] = {};
  S weight[vector::k_base<S>] = {};
  if (m > 1) vector::first_dots(m - 1, static_cast<int>(w), A + 1, lda, g);
  for (index j = 0; j < w; ++j) {
    S* const a = A + j + j * lda;  // the pivot; the rest of its column lies below
    const index tail = m - j - 1;
    const index right = w - j - 1;
    S scale = 1;
    if (tail > 0 && comfortable(real_part(g[0]))) {
      const S alpha = a[0];
      const real beta = -std::copysign(std::sqrt(real_part(times(conjugate(alpha), alpha)) + real_part(g[0])), real_part(alpha));
      scale = real(1) / (alpha - beta);
      tau[j] = (beta - alpha) / beta;
      a[0] = beta;
    } else {
      tau[j] = make_reflector(a[0], tail, a + 1);
      for (index l = 1; l <= right; ++l) {
        g[l] = 0;
        for (index top = 1; top <= tail; top += k_short_run) {
          S sum = 0;
          for (index i = top; i < std::min(top + k_short_run, tail + 1); ++i) sum += times(conjugate(a[i]), a[i + l * lda]);
          g[l] += sum;
        }
      }
    }
    for (index l = 1; l <= right; ++l) {
      S& head = a[l * lda];
      weight[l - 1] = tau[j] == S(0) ? S(0) : times(conjugate(tau[j]), head + times(conjugate(scale), g[l]));
      head -= weight[l - 1];
    }
    if (tail > 0) vector::panel_step(tail, static_cast<int>(right + 1), a + 1, lda, scale, weight, g);
  }
  // T: column j is −τ_j T Vᴴ v_j above the diagonal and τ_j on it.
  for (index i = 0; i + 1 < w; ++i) {
    if (m > w) vector::first_dots(m - w, static_cast<int>(w - i), A + w + i * lda, lda, g);
    for (index j = i + 1; j < w; ++j) {
      S sum = conjugate(A[j + i * lda]);
      for (index r = j + 1; r < w; ++r) sum += times(conjugate(A[r + i * lda]), A[r + j * lda]);
      T[i + j * ldt] = m > w ? sum + g[j - i] : sum;
    }
  }
  for (index j = 0; j < w; ++j) {
    S* const t = T + j * ldt;
    t[j] = tau[j];
    for (index i = 0; i < j; ++i) {
      S sum = 0;
      for (index l = i; l < j; ++l) sum += times(T[i + l * ldt], t[l]);
      t[i] = times(-tau[j], sum);
    }
  }
}

template <class S>
void copy_block(index m, index n, const S* from, index ldf, S* to, index ldt) {
  for (index j = 0; j < n; ++j) std::copy_n(from + j * ldf, m, to + j * ldt);
}

}  // namespace

template <class S>
index product_rows() {
  static const index rows = [] {
    constexpr index order = 16;
    double worst = 0;  // relative error of products of equal numbers, in units of u
    for (const double number : {1.7, 0.3, 1.1}) {
      const S x = static_cast<S>(number);
      const core::vector<S> X(static_cast<std::size_t>(order * k_long_run), x);
      core::vector<S> W(static_cast<std::size_t>(order * order), S(0));
      core::gemm('C', 'N', order, order, k_long_run, S(1), X.data(), k_long_run, X.data(), k_long_run, S(0), W.data(), order);
      const double exact = static_cast<double>(k_long_run) * square_of(x);
      for (const S each : W)
        worst = std::max(worst, size_of_number(static_cast<wide_of<S>>(each) - exact) / (exact * abft::unit_roundoff<real_of<S>>));
    }
    return worst <= 8 ? k_long_run : k_short_run;
  }();
  return rows;
}

template <class S>
void recursive_panel(index m, index w, S* A, index lda, S* tau, S* T, index ldt, S* work) {
  if (w <= vector::k_base<S>) return base_panel(m, w, A, lda, tau, T, ldt);
  const index left = (w / 2 + vector::k_base<S> - 1) / vector::k_base<S> * vector::k_base<S>;
  const index right = w - left;
  recursive_panel(m, left, A, lda, tau, T, ldt, work);

  // Updates the right half: C ← (I − V Tᴴ Vᴴ) C.
  S* const C = A + left * lda;
  S* const W = work;  // left × right
  copy_block(left, right, C, lda, W, left);
  core::trmm('L', 'L', 'C', 'U', left, right, S(1), A, lda, W, left);
  add_product(m - left, left, right, A + left, lda, C + left, lda, W, left);
  core::trmm('L', 'U', 'C', 'N', left, right, S(1), T, ldt, W, left);
  if (m > left) core::gemm('N', 'N', m - left, right, left, S(-1), A + left, lda, W, left, S(1), C + left, lda);
  core::trmm('L', 'L', 'N', 'U', left, right, S(1), A, lda, W, left);
  for (index j = 0; j < right; ++j) {
    for (index i = 0; i < left; ++i) C[i + j * lda] -= W[i + j * left];
  }

  recursive_panel(m - left, right, C + left, lda, tau + left, T + left + left * ldt, ldt, work);

  // T12 = −T1 (V_leftᴴ V_right) T2.
  S* const T12 = T + left * ldt;
  const S* const V_right = C + left;  // its first `right` rows are triangular
  for (index j = 0; j < right; ++j) {
    for (index i = 0; i < left; ++i) T12[i + j * ldt] = conjugate(A[left + j + i * lda]);
  }
  core::trmm('R', 'L', 'N', 'U', left, right, S(1), V_right, lda, T12, ldt);
  add_product(m - w, left, right, A + w, lda, C + w, lda, T12, ldt);
  core::trmm('L', 'U', 'N', 'N', left, right, S(-1), T, ldt, T12, ldt);
  core::trmm('R', 'U', 'N', 'N', left, right, S(1), T + left + left * ldt, ldt, T12, ldt);
}

template <class S>
void reconstruct(index w, S* top, index ld, S* T, S* sign) {
  // LU without pivoting of Q₁ − diag(sign); the sign is chosen so that each pivot is at least 1 in size.
  for (index j = 0; j < w; ++j) {
    S* const a = top + j * ld;
    sign[j] = real_part(a[j]) > 0 ? S(-1) : S(1);
    a[j] -= sign[j];
    for (index i = j + 1; i < w; ++i) a[i] /= a[j];
    for (index c = j + 1; c < w; ++c) {
      S* const b = top + c * ld;
      for (index i = j + 1; i < w; ++i) b[i] -= times(a[i], b[j]);
    }
  }
  // U = −T V1ᴴ diag(sign), so T = −U diag(sign) V1⁻ᴴ.
  for (index j = 0; j < w; ++j) {
    for (index i = 0; i < w; ++i) T[i + j * w] = i <= j ? -top[i + j * ld] * real_part(sign[j]) : S(0);
  }
  core::trsm('R', 'L', 'C', 'U', w, w, S(1), top, ld, T, w);
  for (index j = 0; j < w; ++j) std::fill(T + j + 1 + j * w, T + w + j * w, S(0));
}

namespace {

// Columns of one tree. The extra work of a tree grows with their square; the products that join two trees run at full speed.
constexpr index k_tree_columns = 32;
// Rows of a long product that one task computes.
constexpr index slab_rows(bool alone) { return alone ? 512 : 4096; }

// A tile of this many bytes and its copy fit into a core's second-level cache.
constexpr index k_tile_bytes = 384 << 10;

// Tiles of a panel for which all threads wait (`alone`), and the least bytes of such a panel: a panel that fits into the second-level cache
// of one core is faster as one tile. Measured on 16 cores of a Xeon, 4096 × 128 in f64: 8.0 ms in tiles of k_tile_bytes, 4.6 in 16 tiles,
// 3.9 in 8.
constexpr index k_pieces = 8, k_least_bytes = 2 << 20;

template <class S>
index tile_rows(index m, index w, bool alone) {
  if (alone) return std::max(8 * w, (m + k_pieces - 1) / k_pieces);
  return std::max(4 * w, k_tile_bytes / (static_cast<index>(sizeof(S)) * w) / 64 * 64);
}

// One level of the tree: a matrix divided into tiles of rows, each factored independently.
template <class S>
struct level {
  index rows = 0, tile = 0, tiles = 0;
  S* data = nullptr;
  index ld = 0;
  core::aligned_buffer<S> stack;  // owns `data`, except on the lowest level
  core::aligned_buffer<S> T;      // tiles × w × w
  index first(index i) const { return i * tile; }
  index count(index i) const { return i + 1 < tiles ? tile : rows - first(i); }
};

// Computes M = T V1ᴴ B for a tile, w × w. Then H [B; 0] = [B; 0] − V M.
template <class S>
void tile_factor(index w, const S* V1, index ldv, const S* T, const S* B, index ldb, S* M) {
  copy_block(w, w, B, ldb, M, w);
  core::trmm('L', 'L', 'C', 'U', w, w, S(1), V1, ldv, M, w);
  core::trmm('L', 'U', 'N', 'N', w, w, S(1), T, w, M, w);
}

// tile ← H [B; 0]; `tile` holds V on entry. scratch: count × w; M as computed by tile_factor.
template <class S>
void expand_tile(index count, index w, S* tile, index ld, const S* B, index ldb, S* M, S* scratch) {
  const index below = count - w;
  if (below > 0) core::gemm('N', 'N', below, w, w, S(-1), tile + w, ld, M, w, S(0), scratch, below);
  core::trmm('L', 'L', 'N', 'U', w, w, S(1), tile, ld, M, w);
  for (index j = 0; j < w; ++j) {
    for (index i = 0; i < w; ++i) tile[i + j * ld] = B[i + j * ldb] - M[i + j * w];
    std::copy_n(scratch + j * below, below, tile + w + j * ld);
  }
}

}  // namespace

template <class S>
bool suits_tsqr(index m, index w, bool alone) {
  if (alone && m >= 8 * w && m * w * static_cast<index>(sizeof(S)) >= k_least_bytes) return true;
  return m >= 24 * w && m * std::min(w, k_tree_columns) >= 1 << 17;
}

namespace {

// W ← W + Xᴴ Y (X m × a, Y m × b), by slabs of rows whose partial sums are added in a fixed order.
template <class S>
void slabbed_product(index m, index a, index b, const S* X, index ldx, const S* Y, index ldy, S* W, index ldw, int threads, index slab) {
  const index tasks = (m + slab - 1) / slab;
  core::aligned_buffer<S> partial(tasks * a * b);
  core::parallel_for(threads, tasks, [&](index t, int) {
    S* const own = partial.data() + t * a * b;
    std::fill_n(own, a * b, S(0));
    add_product(std::min(slab, m - t * slab), a, b, X + t * slab, ldx, Y + t * slab, ldy, own, a);
  });
  for (index t = 0; t < tasks; ++t) {
    for (index j = 0; j < b; ++j) {
      for (index i = 0; i < a; ++i) W[i + j * ldw] += partial[t * a * b + i + j * a];
    }
  }
}

}  // namespace

template <class S>
void wide_tsqr_panel(index m, index w, S* A, index lda, S* tau, S* T, index ldt, int threads, bool alone) {
  if (w <= k_tree_columns) {
    core::aligned_buffer<S> own(w * w);
    tsqr_panel(m, w, A, lda, tau, own.data(), threads, alone);
    return copy_block(w, w, own.data(), w, T, ldt);
  }
  // As recursive_panel, with the long products divided into slabs for the threads.
  const index left = (w / 2 + k_tree_columns - 1) / k_tree_columns * k_tree_columns;
  const index right = w - left, slab = slab_rows(alone);
  wide_tsqr_panel(m, left, A, lda, tau, T, ldt, threads, alone);

  S* const C = A + left * lda;
  core::aligned_buffer<S> W(left * right);
  copy_block(left, right, C, lda, W.data(), left);
  core::trmm('L', 'L', 'C', 'U', left, right, S(1), A, lda, W.data(), left);
  slabbed_product(m - left, left, right, A + left, lda, C + left, lda, W.data(), left, threads, slab);
  core::trmm('L', 'U', 'C', 'N', left, right, S(1), T, ldt, W.data(), left);
  core::parallel_for(threads, (m - left + slab - 1) / slab, [&](index t, int) {
    const index top = left + t * slab;
    core::gemm('N', 'N', std::min(slab, m - top), right, left, S(-1), A + top, lda, W.data(), left, S(1), C + top, lda);
  });
  core::trmm('L', 'L', 'N', 'U', left, right, S(1), A, lda, W.data(), left);
  for (index j = 0; j < right; ++j) {
    for (index i = 0; i < left; ++i) C[i + j * lda] -= W[i + j * left];
  }

  wide_tsqr_panel(m - left, right, C + left, lda, tau + left, T + left + left * ldt, ldt, threads, alone);

  S* const T12 = T + left * ldt;
  for (index j = 0; j < right; ++j) {
    for (index i = 0; i < left; ++i) T12[i + j * ldt] = conjugate(A[left + j + i * lda]);
  }
  core::trmm('R', 'L', 'N', 'U', left, right, S(1), C + left, lda, T12, ldt);
  slabbed_product(m - w, left, right, A + w, lda, C + w, lda, T12, ldt, threads, slab);
  core::trmm('L', 'U', 'N', 'N', left, right, S(-1), T, ldt, T12, ldt);
  core::trmm('R', 'U', 'N', 'N', left, right, S(1), T + left + left * ldt, ldt, T12, ldt);
}

namespace {

// The tree over one panel A (m × w). Upward: tiles are factored and their R stacked, until one tile is left. Downward: the explicit Q of
// each level gives the level below its B.
template <class S>
class tree {
 public:
  tree(index m, index w, S* A, index lda, int threads, bool alone)
      : w_(w), threads_(threads), alone_(alone), scratch_(static_cast<std::size_t>(threads)) {
    const index longest = std::min(m, 2 * tile_rows<S>(m, w, alone));
    for (auto& each : scratch_) each = core::aligned_buffer<S>((longest + 2 * w) * w + w);
    identity_ = core::aligned_buffer<S>(w * w);
    for (index i = 0; i < w * w; ++i) identity_[i] = i % (w + 1) == 0 ? S(1) : S(0);
    open(m, A, lda);
  }

  // Factors all levels. Returns R, w × w.
  core::aligned_buffer<S> up() {
    for (;;) {
      core::aligned_buffer<S> stack = factor_tiles(levels_.back());
      const index tiles = levels_.back().tiles;
      if (tiles == 1) return stack;
      open(tiles * w_, stack.data(), tiles * w_);
      levels_.back().stack = std::move(stack);
    }
  }

  // Computes Q explicitly on all levels except the lowest.
  void down() {
    for (std::size_t l = levels_.size(); l-- > 1;) {
      level<S>& here = levels_[l];
      core::parallel_for(threads_, here.tiles, [&](index i, int slot) {
        const auto [B, ldb] = above(l, i);
        S* const tile = here.data + here.first(i);
        S* const M = scratch_[static_cast<std::size_t>(slot)].data();
        tile_factor(w_, tile, here.ld, here.T.data() + i * w_ * w_, B, ldb, M);
        expand_tile(here.count(i), w_, tile, here.ld, B, ldb, M, M + w_ * w_);
      });
    }
  }

  // Computes the first w rows of Q.
  void top_of_q(S* top) {
    const level<S>& ground = levels_.front();
    const auto [B, ldb] = above(0, 0);
    core::aligned_buffer<S> M(w_ * w_);
    tile_factor(w_, ground.data, ground.ld, ground.T.data(), B, ldb, M.data());
    core::trmm('L', 'L', 'N', 'U', w_, w_, S(1), ground.data, ground.ld, M.data(), w_);
    for (index j = 0; j < w_; ++j) {
      for (index i = 0; i < w_; ++i) top[i + j * w_] = B[i + j * ldb] - M[i + j * w_];
    }
  }

  // Computes V = Q U⁻¹ instead of Q on the lowest level: H [B; 0] U⁻¹ = H [B U⁻¹; 0].
  void ground_to_v(const S* U) {
    level<S>& ground = levels_.front();
    core::parallel_for(threads_, ground.tiles, [&](index i, int slot) {
      const auto [B, ldb] = above(0, i);
      S* const tile = ground.data + ground.first(i);
      S* const C = scratch_[static_cast<std::size_t>(slot)].data();
      S* const M = C + w_ * w_;
      copy_block(w_, w_, B, ldb, C, w_);
      core::trsm('R', 'U', 'N', 'N', w_, w_, S(1), U, w_, C, w_);
      tile_factor(w_, tile, ground.ld, ground.T.data() + i * w_ * w_, C, w_, M);
      expand_tile(ground.count(i), w_, tile, ground.ld, C, w_, M, M + w_ * w_);
    });
  }

 private:
  struct block {
    const S* data;
    index ld;
  };

  void open(index rows, S* data, index ld) {
    level<S> made;
    made.rows = rows;
    made.tile = tile_rows<S>(rows, w_, alone_);
    made.tiles = std::max<index>(1, rows / made.tile);
    made.data = data;
    made.ld = ld;
    made.T = core::aligned_buffer<S>(made.tiles * w_ * w_);
    levels_.push_back(std::move(made));
  }

  // Returns the R factors of the tiles, stacked.
  core::aligned_buffer<S> factor_tiles(level<S>& here) {
    const index w = w_;
    core::aligned_buffer<S> stack(here.tiles * w * w);
    core::parallel_for(threads_, here.tiles, [&](index i, int slot) {
      const index count = here.count(i);
      S* const tile = here.data + here.first(i);
      S* const copy = scratch_[static_cast<std::size_t>(slot)].data();
      S* const work = copy + count * w;
      copy_block(count, w, tile, here.ld, copy, count);
      recursive_panel(count, w, copy, count, work + w * w, here.T.data() + i * w * w, w, work);
      copy_block(count, w, copy, count, tile, here.ld);
      for (index j = 0; j < w; ++j) {
        for (index r = 0; r < w; ++r) stack[i * w + r + j * here.tiles * w] = r <= j ? copy[r + j * count] : S(0);
      }
    });
    return stack;
  }

  // B of tile i of level l: its rows of the Q of the level above. The highest level starts from the identity.
  block above(std::size_t l, index i) const {
    if (l + 1 == levels_.size()) return {identity_.data(), w_};
    return {levels_[l + 1].data + i * w_, levels_[l + 1].ld};
  }

  const index w_;
  const int threads_;
  const bool alone_;
  core::vector<level<S>> levels_;  // the lowest first
  core::vector<core::aligned_buffer<S>> scratch_;
  core::aligned_buffer<S> identity_;
};

// LAPACK writes a reflector without a tail as τ = 0, not 2: the sign of its row of R changes, and T with it. A complex τ that is not 2
// stays.
template <class S>
void drop_empty_tails(index m, index w, S* A, index lda, S* tau, S* T) {
  bool flipped = false;
  for (index j = 0; j < w; ++j) {
    if (std::any_of(A + j + 1 + j * lda, A + m + j * lda, [](S v) { return v != S(0); }) || imaginary_part(tau[j]) != 0) continue;
    tau[j] = 0;
    for (index c = j; c < w; ++c) A[j + c * lda] = -A[j + c * lda];
    flipped = true;
  }
  if (!flipped) return;
  core::aligned_buffer<S> V1(w * w);
  for (index j = 0; j < w; ++j) {
    for (index i = 0; i < w; ++i) V1[i + j * w] = i < j ? S(0) : i == j ? S(1) : A[i + j * lda];
  }
  const block_reflector<S> H{m, w, V1.data(), A + w, lda, nullptr};
  cpu_kernels<S>().triangular_factor(H, tau, T);
}

}  // namespace

template <class S>
void tsqr_panel(index m, index w, S* A, index lda, S* tau, S* T, int threads, bool alone) {
  tree<S> tiles(m, w, A, lda, threads, alone);
  const core::aligned_buffer<S> R = tiles.up();
  tiles.down();
  core::aligned_buffer<S> top(w * w), signs(w);
  std::fill_n(top.data(), w * w, S(0));
  tiles.top_of_q(top.data());
  reconstruct(w, top.data(), w, T, signs.data());
  tiles.ground_to_v(top.data());
  for (index j = 0; j < w; ++j) {
    tau[j] = T[j + j * w];
    for (index i = 0; i < w; ++i) A[i + j * lda] = i <= j ? real_part(signs[i]) * R[i + j * w] : top[i + j * w];
  }
  drop_empty_tails(m, w, A, lda, tau, T);
}

#define BALLAST_INSTANTIATE(S)                                                         \
  template index product_rows<S>();                                                    \
  template void recursive_panel<S>(index, index, S*, index, S*, S*, index, S*);        \
  template bool suits_tsqr<S>(index, index, bool);                                     \
  template void tsqr_panel<S>(index, index, S*, index, S*, S*, int, bool);             \
  template void wide_tsqr_panel<S>(index, index, S*, index, S*, S*, index, int, bool); \
  template void reconstruct<S>(index, S*, index, S*, S*);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)

}  // namespace ballast::qr::cpu
