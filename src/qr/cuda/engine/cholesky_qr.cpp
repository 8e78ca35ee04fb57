// A panel of many rows by Cholesky QR: passes of the whole device over its rows, and single thread blocks for the small factors.
// Layer: backend "cuda" of QR. See factorizer.hpp, cholesky_qr.cuh and small_factor.cuh; docs/design/qr-cuda.md says which panels use it
// and which checks cover it.
#include <algorithm>
#include <utility>

#include "qr/cuda/engine/factorizer.hpp"
#include "qr/sites.hpp"

namespace ballast::qr::cuda {

namespace {

// Well conditioned columns are orthonormal after one pass, others after two or three; the fourth is for linearly dependent columns.
constexpr int k_most_passes = 4;

// Doubles of a packed triangle of w columns.
template <class S>
constexpr index triangle_size(int width) {
  return k_reals<S> * packed(0, width);
}

// A panel's packed triangles on the device.
struct cholesky_qr_memory {
  double *G, *R, *product, *lower, *all[2];
};
template <class S>
cholesky_qr_memory memory_of(void* data, int width) {
  double* const first = static_cast<double*>(data);
  const index size = triangle_size<S>(width);
  return {first, first + size, first + 2 * size, first + 3 * size, {first + 4 * size, first + 5 * size}};
}

// The ‖QᵀQ − I‖ whose square is an eighth of a unit roundoff.
template <class S>
constexpr double k_near = sizeof(real_of<S>) == 4 ? 0x1p-14 : 0x1p-28;

// One factor is enough if tr G⁻¹ is at most this, G the Gram matrix of w columns of reals of length 1; complex columns are two
// (real_blocks.cuh). Orthonormal columns have tr G⁻¹ = w. In double Q is then about as far from orthonormal as with LAPACK's reflectors
// (docs/design/qr-cuda.md); floats lose some 2⁻⁵³ · 2²⁰ of 2⁻²⁴.
template <class S>
double most_of_inverse(int width) {
  return sizeof(real_of<S>) == 4 ? 0x1p20 : 1.6 * static_cast<double>(k_reals<S>) * width;
}

// The kernel that divides by a triangle of w columns, and its thread blocks.
template <class S>
constexpr work substitute_numbers(int width) {
  return substitute_of(static_cast<int>(k_reals<S>) * width);
}
template <class S>
constexpr index blocks_of_substitute(int width, index rows) {
  return substitute_blocks(static_cast<int>(k_reals<S>) * width, rows);
}

}  // namespace

// Computes the Gram matrix of A and its factor, and makes the first pass.
template <class S>
void device_factorizer<S>::begin_cholesky_qr(index k) {
  factor_gram(k, 0);
  if (ahead_.last == k && expects_direct(k)) {
    reflect(k, 1);
  } else {
    cholesky_qr_pass(k, 1);
  }
  if (ahead_.last != k) panels_.unsettled = k;
}

// Random columns are direct if there are at least 2.7 rows for each column.
template <class S>
bool device_factorizer<S>::expects_direct(index k) const {
  return ahead_.expects_direct && shape_.m - shape_[k].first >= 3 * shape_[k].width;
}

template <class S>
void device_factorizer<S>::strike_triangle(index k, index which, double* triangle) {
  const layout::block& b = shape_[k];
  for (int j = 0; j < static_cast<int>(b.width) && on_.armed(site::panel); ++j)
    on_.strike(site::panel, cholesky_qr_position(b.first + j, which), triangle + triangle_size<S>(j), k_reals<S> * (j + 1));
}

// Computes the Gram matrix of A, or of Q after `pass` passes. Returns its address.
template <class S>
double* device_factorizer<S>::make_gram(index k, int pass) {
  const layout::block& b = shape_[k];
  const index rows = shape_.m - b.first;
  const int w = static_cast<int>(b.width);
  const index size = triangle_size<S>(w), blocks = gram_blocks<S>(w, rows);
  if (panels_.triangles.data() == nullptr) panels_.triangles = on_.template allocate_of<double>(6 * triangle_size<S>(k_most_wide));
  double* const G = memory_of<S>(panels_.triangles.data(), w).G;
  double* const partial = numbers(panels_.gram, blocks * size);
  cholesky_qr_state* const state = cholesky_qr_of(k);
  on_.launch(gram_of(w), blocks,
             gram_arguments<S>{.from = pass == 0 ? A_ + b.first + b.first * lda_ : V(k),
                               .ldf = pass == 0 ? lda_ : rows,
                               .rows = rows,
                               .width = w,
                               .needed = pass == 0 ? k_cholesky_qr_failed : k_cholesky_qr_factored,
                               .partial = partial,
                               .state = state});
  on_.launch(work::fold, (size + 31) / 32, fold_arguments{partial, blocks, size, G, pass == 0 ? nullptr : state});
  strike_triangle(k, pass == 0 ? 1 : 3, G);
  return G;
}

template <class S>
void device_factorizer<S>::factor_gram(index k, int pass) {
  const int w = static_cast<int>(shape_[k].width);
  if (!std::exchange(panels_.gram_made, false)) (void)make_gram(k, pass);
  const cholesky_qr_memory here = memory_of<S>(panels_.triangles.data(), w);
  double* const R = pass == 0 ? here.all[0] : here.R;
  on_.launch(work::small_factor, 1,
             small_factor_arguments{here.G, w, pass == 0, k_near<S>, most_of_inverse<S>(w), R, here.all[(pass + 1) % 2], here.all[pass % 2],
                                    cholesky_qr_of(k), gate()});
  strike_triangle(k, pass == 0 ? 2 : 4, R);
}

// Q ← A R⁻¹, or Q R⁻¹. If one more factor makes that orthonormal, the panel is completed. For a direct panel Q is not computed.
template <class S>
void device_factorizer<S>::cholesky_qr_pass(index k, int pass) {
  const layout::block& b = shape_[k];
  const index rows = shape_.m - b.first;
  const int w = static_cast<int>(b.width);
  const cholesky_qr_memory here = memory_of<S>(panels_.triangles.data(), w);
  S* const panel = A_ + b.first + b.first * lda_;
  allocate_v(k);
  S* const Q = V(k);
  on_.launch(substitute_numbers<S>(w), blocks_of_substitute<S>(w, rows),
             substitute_arguments<S>{.from = pass == 1 ? panel : Q,
                                     .ldf = pass == 1 ? lda_ : rows,
                                     .to = Q,
                                     .ldt = rows,
                                     .rows = rows,
                                     .width = w,
                                     .needed = k_cholesky_qr_factored,
                                     .R = pass == 1 ? here.all[0] : here.R,
                                     .state = cholesky_qr_of(k)});
  factor_gram(k, pass);
  reflect(k, pass);
}

// Computes R, V, tau and T, if `pass` passes have made the panel's Q orthonormal, or if the panel is direct.
template <class S>
void device_factorizer<S>::reflect(index k, int pass) {
  const layout::block& b = shape_[k];
  const index rows = shape_.m - b.first;
  const int w = static_cast<int>(b.width);
  const cholesky_qr_memory here = memory_of<S>(panels_.triangles.data(), w);
  S* const panel = A_ + b.first + b.first * lda_;
  S* const Q = V(k);
  // The launches below write the panel: wait for its entry check and for the checks of the panel before it.
  if (gate() != nullptr) on_.join(on_.check_stream());
  on_.launch(work::small_reflectors, 1,
             small_reflectors_arguments<S>{.X = Q,
                                           .ldx = rows,
                                           .width = w,
                                           .R = here.R,
                                           .all = here.all[pass % 2],
                                           .direct = here.all[0],
                                           .product = here.product,
                                           .lower = here.lower,
                                           .A = panel,
                                           .lda = lda_,
                                           .tau = tau_ + b.first,
                                           .state = cholesky_qr_of(k),
                                           .gate = gate()});
  // T is computed concurrently with the rest of V, and needed once VᵀC is complete.
  on_.fork(on_.check_stream());
  on_.launch(work::small_t, k_small_t_blocks,
             small_t_arguments<S>{w, here.R, here.all[0], here.product, here.lower, T(k), cholesky_qr_of(k), gate()}, on_.check_stream());
  if (ahead_.begins) on_.mark(on_.check_stream());
  panels_.t_marked = ahead_.begins;
  if (!panels_.t_marked || on_.armed(site::panel))
    on_.join(on_.check_stream());  // T has been computed from the triangle before that is struck
  strike_triangle(k, 5, here.product);
  on_.launch(substitute_numbers<S>(w), blocks_of_substitute<S>(w, rows - w),
             substitute_arguments<S>{.from = Q != nullptr ? Q + w : nullptr,
                                     .ldf = rows,
                                     .to = panel + w,
                                     .ldt = lda_,
                                     .rows = rows - w,
                                     .width = w,
                                     .needed = k_cholesky_qr_orthonormal,
                                     .in_place = true,
                                     .R = here.product,
                                     .state = cholesky_qr_of(k)});
}

// The device decides by its own measurements: for Q = A R⁻¹ by the distance of QᵀQ from I. Until then the panel is unchanged.
template <class S>
bool device_factorizer<S>::settle() {
  if (panels_.unsettled < 0) return false;
  const index k = std::exchange(panels_.unsettled, -1);
  for (int pass = 1;; ++pass) {
    int stage = k_cholesky_qr_failed;
    on_.template fetch<cholesky_qr_state>(cholesky_qr_of(k), 1, [&stage](const cholesky_qr_state* made) { stage = made->stage; });
    on_.wait();
    if (stage == k_cholesky_qr_orthonormal) return pass > 1;
    if (stage == k_cholesky_qr_failed || pass == k_most_passes) break;
    cholesky_qr_pass(k, pass + 1);
  }
  factor_by_reflectors(k);
  return true;
}

template class device_factorizer<float>;
template class device_factorizer<double>;
template class device_factorizer<std::complex<float>>;
template class device_factorizer<std::complex<double>>;

}  // namespace ballast::qr::cuda
