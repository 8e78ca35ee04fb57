// The checksums of a single group, and recovery of a struck column by a rank-one update, in LAPACK's storage.
// Layer: backend "cuda" of QR. See factorizer.hpp; host/givens.cpp does the same in host memory.
// Source: P. Du et al., 2011, §5; G. Golub, C. Van Loan, §12.5 (rank-one update); G. Ballard et al., 2014 (reconstruct.hpp).
#include "qr/cuda/engine/recovery.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/at.hpp"
#include "core/memory.hpp"
#include "qr/arithmetic/reconstruct.hpp"
#include "qr/cuda/engine/factorizer.hpp"
#include "qr/sites.hpp"

namespace ballast::qr::cuda {

using core::at;

namespace {

template <class S, class Arguments>
void launch(const session<S>& on, const ballast::cuda::kernel_request& what, index blocks, const Arguments& given) {
  on.device()->launch(on.device()->load(what), blocks, &given, sizeof given, on.main());
}

}  // namespace

template <class S>
void reduce_hessenberg(session<S>& on, S* R, index ld, index count, index n, S* Y, S* c, S* s, bool plain) {
  rotate_rows_arguments<S> given{R, ld, 0, 0, 0, n, Y, c, s, -1, nullptr};
  if (plain) {
    for (index i = 0; i < count; ++i) {
      given.first = i;
      given.first_column = i + 1;
      launch(on, recovery_names<S>::make_one(), 1, given);
      if (i + 1 < n) launch(on, recovery_names<S>::apply_one(), slabs(n - i - 1), given);
    }
    return;
  }
  const index each = recovery_names<S>::block(on.device()->about());
  const ballast::cuda::kernel_request making = recovery_names<S>::rows(rotating::making, static_cast<int>(each)),
                                      down = recovery_names<S>::rows(rotating::down, static_cast<int>(each));
  for (index first = 0; first < count; first += each) {
    given.first = first;
    given.last = std::min(first + each, count);
    given.first_column = first;
    launch(on, making, 1, given);
    given.first_column = first + each;
    if (given.first_column < n) launch(on, down, (n - given.first_column + each - 1) / each, given);
  }
}

template void reduce_hessenberg(session<float>&, float*, index, index, index, float*, float*, float*, bool);
template void reduce_hessenberg(session<double>&, double*, index, index, index, double*, double*, double*, bool);
template void reduce_hessenberg(session<std::complex<float>>&, std::complex<float>*, index, index, index, std::complex<float>*,
                                std::complex<float>*, std::complex<float>*, bool);
template void reduce_hessenberg(session<std::complex<double>>&, std::complex<double>*, index, index, index, std::complex<double>*,
                                std::complex<double>*, std::complex<double>*, bool);

// ----------------------------------------------------------------------------------------------------------- the whole matrix

template <class S>
void device_factorizer<S>::measure_matrix(matrix_sums* seen) {
  const index m = shape_.m, rows = k_reals<S> * m;
  auto* const checksums = static_cast<S*>(checks_.C.data());
  on_.strike(site::checksum, {}, checksums, 2 * m);
  wide* const y = sums_in(scratch_.vectors, 2 * m);
  const auto R = column_major<const S>(A_, m, shape_.n, lda_);
  for (index q = 0; q < 2; ++q) weigh_matrix(R, nullptr, true, q, y + q * m);
  double* const partial = numbers(scratch_.partial, 3 * slabs(rows));
  double* const sums = numbers(scratch_.sums, 3);
  on_.launch_match({qr::reals(checksums), qr::reals(y), rows, partial}, slabs(rows));
  on_.launch(work::fold, 1, fold_arguments{partial, slabs(rows), 3, sums});
  on_.template fetch<double>(sums, 3, [seen](const double* made) {
    const double square = made[0] != made[0] || made[0] > made[2] ? made[0] : made[2];
    *seen = {std::sqrt(square), made[0] / square, made[1] / square, made[2] / square};
  });
}

// The explicit factors during the recovery; R stays in place.
template <class S>
struct device_factorizer<S>::rotated {
  index length = 0;      // columns of Q: steps, plus one if m > steps
  buffer w;              // Q̃ᵀ a_j; its tail is folded into one element
  buffer Q;              // m × length
  buffer Y;              // R's subdiagonal
  buffer rotations;      // c and s of J, then of G: length each
  core::vector<S> turn;  // complex: R_ii / |R_ii| after the rotations, by which column i of Q has been multiplied; row i of R has not
  static S* of(const buffer& memory) { return static_cast<S*>(memory.data()); }
};

template <class S>
void device_factorizer<S>::recover_column(index j) {
  on_.join(on_.update_stream());
  rotated work = split_column(j);
  rotate_back(j, work);
  reflectors_of(work);
  panels_.formed = -1;
}

// Computes w = Q̃ᴴ a_j, Q̃, and R̃ without its column j. If m > steps, the part of a_j outside the span of Q̃'s columns becomes one more column
// of Q̃.
template <class S>
auto device_factorizer<S>::split_column(index j) -> rotated {
  const index m = shape_.m, k = shape_.steps;
  rotated made;
  made.length = k + (m > k ? 1 : 0);
  made.w = on_.template allocate_of<S>(m);
  made.Q = on_.template allocate_of<S>(core::checked_product(m, made.length));
  made.Y = on_.template allocate_of<S>(made.length);
  made.rotations = on_.template allocate_of<S>(4 * made.length);
  S* const w = rotated::of(made.w);
  S* const Q = rotated::of(made.Q);
  S* const V = scratch(repeated_.V, m * nb());
  S* const W = static_cast<S*>(updates_.W[0].data());
  const index most = updates_.W[0].bytes() / (2 * nb() * static_cast<index>(sizeof(S)));  // the columns that W has room for
  copy_columns(source_, j, 1, w, m, true);
  for (index p = 0; p < shape_.panels; ++p) {
    form_v(p, V, on_.main());
    apply(p, formed(p, V), {0, 1}, w + shape_[p].first, m, W, on_.main(), {});
  }
  on_.launch(work::copy, tiles(m, made.length),
             copy_arguments<S>{nullptr, 0, 0, Q, 1, m, m, made.length, m, 0, nullptr, nullptr, 1, false});
  if (m > k) launch(on_, recovery_names<S>::tail(), 1, tail_arguments<S>{w, m, k, Q + k * m});
  for (index p = shape_.panels; p-- > 0;) {
    form_v(p, V, on_.main());
    const index row = shape_[p].first;
    // Columns before `row` are still the identity's.
    for (index c = row; c < made.length; c += most) {
      const index n = std::min(most, made.length - c);
      S* const C = Q + row + c * m;
      on_.product(formed(p, V), n, C, m, W, on_.main());
      on_.update(formed(p, V), false, n, W, C, m, on_.main());
    }
  }
  on_.device()->zero(A_ + j * lda_, (std::min(j, k - 1) + 1) * static_cast<index>(sizeof(S)), on_.main());
  return made;
}

// Applies the two sweeps of rotations, J and G. Q R = (Q D)(D̄ R) with |D_ii| = 1 then makes the diagonal of a complex R real.
template <class S>
void device_factorizer<S>::rotate_back(index j, rotated& work) {
  const index m = shape_.m, n = shape_.n, count = work.length - 1;
  S* const w = rotated::of(work.w);
  S* const Q = rotated::of(work.Q);
  S* const Y = rotated::of(work.Y);
  S* const c = rotated::of(work.rotations);
  S* const s = c + work.length;
  const index each = recovery_names<S>::block(on_.device()->about());
  on_.device()->zero(Y, work.Y.bytes(), on_.main());
  launch(on_, recovery_names<S>::givens(), 1, givens_arguments<S>{w, work.length, c, s});
  launch(on_, recovery_names<S>::rows(rotating::up, static_cast<int>(each)), (n + each - 1) / each,
         rotate_rows_arguments<S>{A_, lda_, 0, count, 0, n, Y, c, s, j, w});
  const auto rotate = [&](const S* cosines, const S* sines, bool up, const buffer& turns) {
    if (count == 0 && turns.data() == nullptr) return;
    launch(on_, recovery_names<S>::columns(), slabs(m),
           rotate_columns_arguments<S>{Q, m, m, 0, count, cosines, sines, up, static_cast<const S*>(turns.data()),
                                       static_cast<index>(work.turn.size())});
  };
  rotate(c, s, true, {});
  S* const c2 = s + work.length;
  S* const s2 = c2 + work.length;
  reduce_hessenberg(on_, A_, lda_, count, n, Y, c2, s2, on_.run().plain_recovery);
  if constexpr (is_complex<S>) work.turn = turns_of_r();
  rotate(c2, s2, false, is_complex<S> ? on_.upload(work.turn.data(), static_cast<index>(work.turn.size())) : buffer());
}

// Returns R_ii / |R_ii|; 1 where R_ii is real.
template <class S>
auto device_factorizer<S>::turns_of_r() -> core::vector<S> {
  const index k = shape_.steps;
  const buffer packed = on_.template allocate_of<S>(k);
  on_.launch(work::copy, tiles(1, k),
             copy_arguments<S>{A_, 1, lda_ + 1, static_cast<S*>(packed.data()), 1, 1, 1, k, 1, 0, nullptr, nullptr, 1, false});
  core::vector<S> turns(at(k));
  on_.copy(turns.data(), packed.data(), packed.bytes());
  on_.wait();
  for (S& each : turns) each = imaginary_part(each) == 0 ? S(1) : static_cast<S>(static_cast<wide>(each) / size_of_number(each));
  return turns;
}

// Reconstructs the reflectors of Q's first `steps` columns, panel by panel: the host factors the square block on the diagonal, products
// compute the rest. T of all panels comes from VᵀV.
template <class S>
void device_factorizer<S>::reflectors_of(rotated& work) {
  const index m = shape_.m, k = shape_.steps, size = static_cast<index>(sizeof(S));
  S* const Q = rotated::of(work.Q);
  ballast::cuda::blas& products = on_.blas(on_.main());
  core::vector<S> sign(at(k)), tau(at(k)), square(at(nb() * nb()));
  for (index p = 0; p < shape_.panels; ++p) {
    const index first = shape_[p].first, w = shape_[p].width, below = m - first - w, right = k - first - w;
    S* const D = Q + first * (m + 1);
    on_.device()->copy_columns(square.data(), w * size, D, m * size, w * size, w, on_.main());
    on_.wait();
    factor_signed(w, w, square.data(), w, sign.data() + first, tau.data() + first);
    on_.device()->copy_columns(D, m * size, square.data(), w * size, w * size, w, on_.main());
    if (below > 0) products.trsm('R', 'U', 'N', 'N', below, w, S(1), D, m, D + w, m);
    if (right > 0) products.trsm('L', 'L', 'N', 'U', w, right, S(1), D, m, D + w * m, m);
    if (right > 0 && below > 0) products.gemm('N', 'N', below, right, w, S(-1), D + w, m, D + w * m, m, S(1), D + w * (m + 1), m);
  }
  // A reflector without a tail is stored with tau = 0. A complex tau that is not 2 stays.
  const buffer tails = on_.template allocate_of<column_result>(k);
  auto* const norms = static_cast<column_result*>(tails.data());
  on_.scan(scan_arguments<S>{Q, m, m, 1, false, true, norms}, k, on_.main());
  on_.template fetch<column_result>(norms, k, [&](const column_result* made) {
    for (index c = 0; c < k; ++c) {
      if (made[c].finite == 0 || made[c].norm != 0 || imaginary_part(tau[at(c)]) != 0) continue;
      tau[at(c)] = 0;
      sign[at(c)] = -sign[at(c)];
    }
  });
  on_.wait();
  for (index c = 0; c < k && is_complex<S>; ++c) sign[at(c)] = times(sign[at(c)], conjugate(work.turn[at(c)]));
  const buffer signs = on_.upload(sign.data(), k);
  on_.copy(tau_, tau.data(), k * size);
  launch(on_, recovery_names<S>::store(), slabs(m * shape_.n),
         store_factors_arguments<S>{A_, lda_, m, shape_.n, k, Q, static_cast<const S*>(signs.data())});
  on_.make_t(column_major(A_, m, k, lda_), nb(), tau_, T(0));
}

template class device_factorizer<float>;
template class device_factorizer<double>;
template class device_factorizer<std::complex<float>>;
template class device_factorizer<std::complex<double>>;

}  // namespace ballast::qr::cuda
