// Norms, scaling, the kept copy and the checksums of the input.
// Layer: backend "cuda" of QR. See factorizer.hpp.
#include <algorithm>
#include <cmath>

#include "qr/arithmetic/random.hpp"
#include "qr/cuda/engine/factorizer.hpp"

namespace ballast::qr::cuda {

template <class S>
column_result* device_factorizer<S>::column_results(index columns) {
  columns = std::max(columns, 2 * static_cast<index>(shape_.groups.size()) + 1);  // enough for encode(), which measures on the check stream
  if (scratch_.results.bytes() < columns * static_cast<index>(sizeof(column_result)))
    scratch_.results = on_.template allocate_of<column_result>(columns);
  return static_cast<column_result*>(scratch_.results.data());
}

// Computes the column norms of A, or of R. `gram`: as in scan_arguments.
template <class S>
void device_factorizer<S>::scan_columns(bool r, const double* gram, column_size* sizes) {
  const index n = shape_.n;
  column_result* const to = column_results(n);
  on_.scan(
      scan_arguments<S>{
          .X = A_, .ld = lda_, .rows = r ? shape_.steps : shape_.m, .first = 0, .upper = r, .lower = false, .to = to, .gram = gram},
      n, on_.main());
  on_.fetch_sizes(to, n, sizes);
}

// If the matrix is a single Cholesky QR panel, its Gram matrix holds the norms: it is computed now, and A is not read for the norms.
template <class S>
void device_factorizer<S>::scan(column_size* sizes) {
  panels_.gram_made = shape_.one_block() && on_.uses_cholesky_qr(shape_.m, shape_.n);
  scan_columns(false, panels_.gram_made ? make_gram(0, 0) : nullptr, sizes);
}

template <class S>
void device_factorizer<S>::scan_r(column_size* sizes) {
  scan_columns(true, nullptr, sizes);
}

template <class S>
void device_factorizer<S>::copy_columns(const matrix_view<const S>& from, index first, index width, S* to, index ld, bool scaled) {
  on_.launch(work::copy, tiles(shape_.m, width),
             copy_arguments<S>{from.data + first * from.column_stride, from.row_stride, from.column_stride, to, 1, ld, shape_.m, width,
                               shape_.m, 0, nullptr, scaled && shifts() != nullptr ? shifts() + first : nullptr, 1, false});
}

template <class S>
S* device_factorizer<S>::copy_memory() {
  if (kept_.input.data() == nullptr) kept_.input = on_.template allocate_of<S>(core::checked_product(shape_.m, shape_.n));
  return static_cast<S*>(kept_.input.data());
}

template <class S>
void device_factorizer<S>::keep_source() {
  if (source_.data != nullptr) return;
  S* const to = copy_memory();
  copy_columns(column_major<const S>(A_, shape_.m, shape_.n, lda_), 0, shape_.n, to, shape_.m, false);
  source_ = column_major<const S>(to, shape_.m, shape_.n);
}

// Scaling may round (subnormal remainders), and unscaling must restore the exact input, so the unscaled input is kept.
template <class S>
void device_factorizer<S>::scale(const int* shifts) {
  on_.join(on_.update_stream());
  panels_.gram_made = false;
  keep_source();
  shifts_ = on_.upload(shifts, shape_.n);
  copy_columns(source_, 0, shape_.n, A_, lda_, true);
}

template <class S>
void device_factorizer<S>::unscale() {
  const index rows = std::min(shape_.m, shape_.n);
  on_.launch(work::copy, tiles(rows, shape_.n),
             copy_arguments<S>{A_, 1, lda_, A_, 1, lda_, rows, shape_.n, rows, 0, nullptr, shifts(), -1, true});
  shifts_ = {};
}

template <class S>
void device_factorizer<S>::restart() {
  join_all();
  copy_columns(source_, 0, shape_.n, A_, lda_, false);
  shifts_ = {};
}

template <class S>
void device_factorizer<S>::give_back() {
  join_all();
  copy_columns(source_, 0, shape_.n, A_, lda_, false);
  if (kept_.tau.data() != nullptr) on_.copy(tau_, kept_.tau.data(), kept_.tau.bytes());
}

template <class S>
void device_factorizer<S>::prepare(bool keep) {
  if (checks_.C.data() != nullptr) return;
  const index m = shape_.m, n = shape_.n, groups = static_cast<index>(shape_.groups.size());
  checks_.C = on_.template allocate_of<S>(core::checked_product(m, 2 * groups));
  for (buffer* each : {&checks_.product, &checks_.carried, &checks_.next}) *each = on_.template allocate_of<wide>(m);
  checks_.random = on_.template allocate_of<double>(n);
  updates_.W_of_checksums = on_.template allocate_of<S>(4 * nb() * groups);
  checks_.head = on_.template allocate_of<wide>(2 * nb());
  checks_.arrived = on_.template allocate_of<std::uint32_t>(1);
  if (!shape_.one_block()) {
    checks_.row_weights = on_.template allocate_of<double>(k_reals<S> * m);
    checks_.checkpoints = on_.template allocate_of<double>(4 * nb() * shape_.panels);
    checks_.again = on_.template allocate_of<double>(4 * nb() * shape_.panels);
    checks_.seals = on_.template allocate_of<unsigned long long>(6 * shape_.panels);
  }
  if (keep) {
    kept_.tau = on_.template allocate_of<S>(shape_.steps);
    if (source_.data == nullptr && !shape_.single_group) (void)copy_memory();
  }
  // Runs concurrently with the work that the host waits for; its results are used only after a join of this stream.
  const stream checks = on_.check_stream();
  on_.fork(checks);
  on_.device()->zero(checks_.arrived.data(), sizeof(std::uint32_t), checks);
  draw(checks);
  if (keep) on_.device()->copy(kept_.tau.data(), tau_, kept_.tau.bytes(), checks);
}

// Draws the weights of the checkpoints and of the orthogonality checks.
template <class S>
void device_factorizer<S>::draw(stream on) {
  const auto random = [&](const buffer& to, index count, std::uint64_t numbers, bool with_sign) {
    if (to.data() == nullptr) return;
    on_.launch(work::random, slabs(count), random_arguments{static_cast<double*>(to.data()), count, numbers, with_sign}, on);
  };
  random(checks_.row_weights, k_reals<S> * shape_.m, k_checkpoint_stream, false);
  random(checks_.random, shape_.n, k_orthogonality_stream, true);
}

// Computes checksum columns and the certificate's product, with a separate reading of the input for each. The work on them runs on the
// check stream, concurrent with the work on A.
template <class S>
void device_factorizer<S>::encode(const double* weights, bool keep, double* squares) {
  const index m = shape_.m, n = shape_.n, groups = static_cast<index>(shape_.groups.size());
  const stream checks = on_.check_stream();
  checks_.weights = on_.upload(weights, 3 * n);
  const matrix_view<const S> from = source_.data != nullptr ? source_ : column_major<const S>(A_, m, n, lda_);
  const int* const scaled_by = source_.data != nullptr ? shifts() : nullptr;
  wide* const product = wides(checks_.product);
  if (shape_.single_group) {
    wide* const y = sums_in(scratch_.vectors, 2 * m);
    for (index q = 0; q < 2; ++q) weigh_matrix(from, scaled_by, false, q, y + q * m);
    on_.launch(work::accept, slabs(m), accept_arguments<S>{y, m, static_cast<S*>(checks_.C.data()), m, nullptr, nullptr, m});
    weigh_matrix(from, scaled_by, false, 2, product);
    if (keep) keep_source();
    on_.fork(checks);
  } else {
    S* const copy = keep && source_.data == nullptr ? copy_memory() : nullptr;
    wide* const parts = groups == 1 ? product : sums_in(scratch_.parts, core::checked_product(m, groups));
    const int sharing = encode_sharing<S>(m, groups);
    on_.launch(work::encode, encode_blocks<S>(m, sharing) * groups,
               encode_arguments<S>{from.data, from.row_stride, from.column_stride, scaled_by, m, blocks(), this->weights(), n,
                                   static_cast<S*>(checks_.C.data()), parts, copy, sharing});
    on_.fork(checks);
    if (parts != product) combine(parts, groups, nullptr, product, nullptr, m, checks);
    if (copy != nullptr) source_ = column_major<const S>(copy, m, n);
  }
  const index columns = 2 * groups + 1;
  column_result* const to = column_results(columns);
  on_.scan(scan_arguments<S>{static_cast<const S*>(checks_.C.data()), m, m, 0, false, false, to}, 2 * groups, checks);
  on_.scan(scan_arguments<wide>{product, m, m, 0, false, false, to + 2 * groups}, 1, checks);
  checks_.brought = on_.template bring<column_result>(to, columns, checks);
  checks_.encoded = squares;
}

template <class S>
void device_factorizer<S>::await_encoded() {
  on_.await_brought();
  const auto square = [this](index c) {
    return checks_.brought[c].finite != 0 ? std::pow(std::ldexp(checks_.brought[c].norm, checks_.brought[c].exponent), 2) : NAN;
  };
  const auto groups = static_cast<index>(shape_.groups.size());
  for (index g = 0; g < groups; ++g) {
    const double a = square(2 * g), b = square(2 * g + 1);
    checks_.encoded[g] = a != a || a > b ? a : b;
  }
  checks_.encoded[groups] = square(2 * groups);
}

// to = X times the weights of column `weight`; `r`: X holds a factorization, and only R is multiplied.
template <class S>
void device_factorizer<S>::weigh_matrix(const matrix_view<const S>& X, const int* shifts, bool r, index weight, wide* to) {
  const index m = shape_.m, count = shape_.count();
  wide* const parts = sums_in(scratch_.parts, core::checked_product(m, count));
  on_.launch(work::weigh, row_blocks(m) * count,
             weigh_arguments<S>{.X = X.data,
                                .row_stride = X.row_stride,
                                .column_stride = X.column_stride,
                                .shifts = shifts,
                                .rows = m,
                                .blocks = blocks(),
                                .first_block = 0,
                                .chunks = static_cast<int>(count),
                                .r = r,
                                .z = weights() + weight * shape_.n,
                                .ldz = shape_.n,
                                .count = 1,
                                .ldi = m,
                                .to = parts});
  combine(parts, count, nullptr, to, nullptr, m, on_.main());
}

// Adds up the sums of `chunks` chunks, or subtracts them from `from`; rows from `there` on are 0 in all chunks. The components of a complex
// number are two rows.
template <class S>
void device_factorizer<S>::combine(const wide* parts, index chunks, const wide* from, wide* to, double* squares, index there, stream on) {
  constexpr index reals = k_reals<S>;
  const auto doubles = [](auto* x) { return qr::reals(x); };
  on_.launch(
      work::combine, slabs(reals * shape_.m),
      combine_arguments{doubles(parts), static_cast<int>(chunks), reals * shape_.m, doubles(from), doubles(to), squares, reals * there},
      on);
}

template <class S>
void device_factorizer<S>::reload(index b) {
  const layout::block& here = shape_[b];
  copy_columns(source_, here.first, here.width, A_ + here.first * lda_, lda_, true);
  if (shape_.single_group) return;
  on_.launch(work::weigh, row_blocks(shape_.m),
             weigh_arguments<S>{.X = source_.data,
                                .row_stride = source_.row_stride,
                                .column_stride = source_.column_stride,
                                .shifts = shifts(),
                                .rows = shape_.m,
                                .blocks = blocks(),
                                .first_block = b,
                                .chunks = 1,
                                .r = false,
                                .z = weights(),
                                .ldz = shape_.n,
                                .count = 2,
                                .ldi = shape_.m,
                                .to_column = checksums(here.group)});
}

template class device_factorizer<float>;
template class device_factorizer<double>;
template class device_factorizer<std::complex<float>>;
template class device_factorizer<std::complex<double>>;

}  // namespace ballast::qr::cuda
