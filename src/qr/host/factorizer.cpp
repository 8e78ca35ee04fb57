// Loads, scales and encodes the input; factors panels and applies them.
// Layer: backend (host). See factorizer.hpp.
#include "qr/host/factorizer.hpp"

#include <algorithm>
#include <cmath>

#include "abft/attempt.hpp"
#include "core/parallel.hpp"
#include "inject/injector.hpp"
#include "qr/checks/largest.hpp"
#include "qr/checks/weights.hpp"
#include "qr/host/strike.hpp"
#include "qr/sites.hpp"

namespace ballast::qr::host {

namespace {

// Rows that one task encodes: fixed, so that results do not depend on the number of threads.
constexpr index k_encode_rows = 512;

// Up to this many checksum columns are updated by sums over slabs; more by the backend's products. For two columns of 200,000 rows a BLAS
// product takes 3.7 ms, the sums 1.1 ms.
constexpr index k_narrow = 8;

}  // namespace

template <class S>
blocked_factorizer<S>::blocked_factorizer(const context& run, const kernels<S>& arithmetic, const layout& shape, const matrix_view<S>& A,
                                          S* tau, const matrix_view<const S>& source)
    : run_(run), kernels_(arithmetic), shape_(shape), A_(A.data), lda_(A.column_stride), tau_(tau), source_(source) {
  const index size = core::checked_product(shape.panels, shape.panel_width * shape.panel_width);
  V1_ = core::aligned_buffer<S>(size);
  T_ = core::aligned_buffer<S>(size);
  seals_.T.resize(static_cast<std::size_t>(shape.panels));
  seals_.R.resize(static_cast<std::size_t>(2 * shape.panels));
  checkpoints_.resize(static_cast<std::size_t>(shape.panels));
}

// ------------------------------------------------------------------------------------------------- the input and its checksums

template <class S>
column_size size_of(const kernels<S>& arithmetic, index rows, const S* a) {
  column_size size;
  double squares = 0;
  arithmetic.squares(rows, 1, a, rows, &squares);
  if (squares >= abft::k_squares<double>.low && squares <= abft::k_squares<double>.high) {
    size.exponent = std::ilogb(std::sqrt(squares));
    size.norm = std::ldexp(std::sqrt(squares), -size.exponent);
    return size;
  }
  // The squares left the range of doubles, or the column is zero.
  largest most;
  most.add(reals(a), k_reals<S> * rows);
  size.finite = std::isfinite(most.value());
  if (!size.finite || most.value() == 0) return size;
  size.exponent = std::ilogb(most.value());
  squares = 0;
  for (index i = 0; i < k_reals<S> * rows; ++i) {
    const double each = std::ldexp(static_cast<double>(reals(a)[i]), -size.exponent);
    squares += each * each;
  }
  size.norm = std::sqrt(squares);
  return size;
}

template <class S>
void blocked_factorizer<S>::scan(column_size* sizes) {
  core::parallel_for(run_.threads, shape_.n, [&](index j, int) { sizes[j] = size_of(kernels_, shape_.m, A_ + j * lda_); });
}

template <class S>
void blocked_factorizer<S>::scan_r(column_size* sizes) {
  core::parallel_for(run_.threads, shape_.n, [&](index j, int) { sizes[j] = size_of(kernels_, std::min(j + 1, shape_.m), A_ + j * lda_); });
}

// Scaling may round (subnormal remainders), and unscaling must restore the exact input, so the unscaled input is kept.
template <class S>
void blocked_factorizer<S>::scale(const int* shifts) {
  if (source_.data == nullptr) {
    copy_ = core::large_buffer<S>(core::checked_product(shape_.m, shape_.n));
    for (index j = 0; j < shape_.n; ++j) std::copy_n(A_ + j * lda_, shape_.m, copy_.data() + j * shape_.m);
    source_ = column_major<const S>(copy_.data(), shape_.m, shape_.n);
  }
  shift_.assign(shifts, shifts + shape_.n);
  restore(true);
}

template <class S>
void blocked_factorizer<S>::unscale() {
  for (index j = 0; j < shape_.n; ++j) {
    const int e = shift_[static_cast<std::size_t>(j)];
    if (e == 0) continue;
    for (index i = 0; i < std::min(j + 1, shape_.m); ++i) A_[i + j * lda_] = scaled(A_[i + j * lda_], -e);
  }
  shift_.clear();
}

template <class S>
S blocked_factorizer<S>::from_source(index i, index j) const {
  const S value = source_(i, j);
  return shift_.empty() || shift_[static_cast<std::size_t>(j)] == 0 ? value : scaled(value, shift_[static_cast<std::size_t>(j)]);
}

template <class S>
void blocked_factorizer<S>::restore(bool scaled) {
  core::parallel_for(run_.threads, shape_.n, [&](index j, int) {
    for (index i = 0; i < shape_.m; ++i) A_[i + j * lda_] = scaled ? from_source(i, j) : source_(i, j);
  });
}

template <class S>
void blocked_factorizer<S>::restart() {
  restore(false);
  shift_.clear();
}

template <class S>
void blocked_factorizer<S>::give_back() {
  restore(false);
  std::copy(tau_copy_.begin(), tau_copy_.end(), tau_);
}

template <class S>
void blocked_factorizer<S>::encode(const double* weights, bool keep, double* squares) {
  const index m = shape_.m;
  const auto groups = static_cast<index>(shape_.groups.size());
  weights_.assign(weights, weights + 3 * shape_.n);
  C_ = core::large_buffer<S>(core::checked_product(m, 2 * groups));
  certificate_.product.resize(static_cast<std::size_t>(m));
  row_weights_ = core::large_buffer<double>(k_reals<S> * m);
  core::parallel_for(run_.threads, (m + k_encode_rows - 1) / k_encode_rows, [&](index t, int) {
    for (index i = k_reals<S> * t * k_encode_rows; i < k_reals<S> * std::min((t + 1) * k_encode_rows, m); ++i)
      row_weights_[i] = abft::random_weight(k_weight_seed, k_checkpoint_stream, static_cast<std::uint64_t>(i));
  });
  certificate_.carried = core::aligned_buffer<wide>(m);
  certificate_.next = core::aligned_buffer<wide>(m);
  if (keep && tau_copy_.empty()) tau_copy_.assign(tau_, tau_ + shape_.steps);
  keep = keep && source_.data == nullptr;
  if (keep) copy_ = core::large_buffer<S>(core::checked_product(m, shape_.n));
  core::parallel_for(run_.threads, (m + k_encode_rows - 1) / k_encode_rows,
                     [&](index t, int) { encode_rows(t * k_encode_rows, std::min(k_encode_rows, m - t * k_encode_rows), keep); });
  if (keep) source_ = column_major<const S>(copy_.data(), m, shape_.n);
  for (index g = 0; g < groups; ++g) {
    double both[2] = {};
    kernels_.squares(m, 2, checksums(g), m, both);
    squares[g] = std::max(both[0], both[1]);
  }
  squares[groups] = 0;
  for (const wide& each : certificate_.product) squares[groups] += square_of(each);
}

// y_q ← y_q − rows top … top + rows − 1 of columns first … of the (scaled) input, times weights first_weight + q.
template <class S>
void blocked_factorizer<S>::subtract_input(index top, index rows, index first, index width, int count, index first_weight, wide* y,
                                           index ldy) const {
  const double* const z = weights_.data() + first_weight * shape_.n;
  if (source_.data == nullptr)
    return kernels_.subtract_weighted(rows, width, A_ + top + first * lda_, lda_, count, z + first, shape_.n, y, ldy);
  if (source_.row_stride == 1 && shift_.empty())
    return kernels_.subtract_weighted(rows, width, &source_(top, first), source_.column_stride, count, z + first, shape_.n, y, ldy);
  constexpr index k_columns = 32;
  core::vector<S> read(static_cast<std::size_t>(rows * std::min(width, k_columns)));
  for (index from = first; from < first + width; from += k_columns) {
    const index columns = std::min(k_columns, first + width - from);
    for (index j = 0; j < columns; ++j) {
      for (index i = 0; i < rows; ++i) read[static_cast<std::size_t>(i + j * rows)] = from_source(top + i, from + j);
    }
    kernels_.subtract_weighted(rows, columns, read.data(), rows, count, z + from, shape_.n, y, ldy);
  }
}

// Computes the checksum columns and the certificate's product for rows top … top + count − 1 of A; keeps a copy of these rows if asked.
// Each step reads the rows itself, the later ones while the rows are in cache.
template <class S>
void blocked_factorizer<S>::encode_rows(index top, index count, bool keep) {
  const index m = shape_.m;
  core::vector<wide> y(static_cast<std::size_t>(3 * count), 0.0);
  for (std::size_t g = 0; g < shape_.groups.size(); ++g) {
    const layout::group& here = shape_.groups[g];
    std::fill(y.begin(), y.begin() + 2 * count, 0.0);
    subtract_input(top, count, here.first, here.width, 2, 0, y.data(), count);
    subtract_input(top, count, here.first, here.width, 1, 2, y.data() + 2 * count, count);
    S* const c = checksums(static_cast<index>(g)) + top;
    for (index i = 0; i < count; ++i) {
      c[i] = static_cast<S>(-y[static_cast<std::size_t>(i)]);
      c[i + m] = static_cast<S>(-y[static_cast<std::size_t>(i + count)]);
    }
    if (!keep) continue;
    for (index j = here.first; j < here.first + here.width; ++j) std::copy_n(A_ + top + j * lda_, count, copy_.data() + top + j * m);
  }
  for (index i = 0; i < count; ++i) certificate_.product[static_cast<std::size_t>(top + i)] = -y[static_cast<std::size_t>(2 * count + i)];
}

template <class S>
void blocked_factorizer<S>::reload(index b) {
  const layout::block& here = shape_[b];
  const index m = shape_.m;
  for (index j = here.first; j < here.first + here.width; ++j) {
    for (index i = 0; i < m; ++i) A_[i + j * lda_] = from_source(i, j);
  }
  if (shape_.single_group) return;
  core::vector<wide> y(static_cast<std::size_t>(2 * m), 0.0);
  subtract_input(0, m, here.first, here.width, 2, 0, y.data(), m);
  S* const c = checksums(here.group);
  for (index i = 0; i < 2 * m; ++i) c[i] = static_cast<S>(-y[static_cast<std::size_t>(i)]);
}

// ------------------------------------------------------------------------------------------------------------ panels and updates

template <class S>
block_reflector<S> blocked_factorizer<S>::reflector(index k) const {
  const layout::block& b = shape_[k];
  return {shape_.m - b.first, b.width, v1(k), A_ + b.first + b.width + b.first * lda_, lda_, t(k)};
}

// Copies V1, with its ones and zeros written out, from the panel's storage.
template <class S>
void blocked_factorizer<S>::copy_v1(index k) {
  const layout::block& b = shape_[k];
  copy_triangle(b.width, A_ + b.first + b.first * lda_, lda_, v1(k));
}

template <class S>
void blocked_factorizer<S>::begin_pass() {
  if (!weights_.empty()) std::copy(certificate_.product.begin(), certificate_.product.end(), certificate_.carried.data());
}

template <class S>
void blocked_factorizer<S>::begin_panel(index k) {
  if constexpr (inject::active_injector::enabled) {
    if (!weights_.empty() && !shape_.single_group)
      strike(run_.injector, site::checksum, {k, shape_.count(), 0, 1}, checksums(shape_[k].group), 2 * shape_.m);
  }
}

template <class S>
void blocked_factorizer<S>::factor_panel(index k, bool finite) {
  const layout::block& b = shape_[k];
  const index m = shape_.m;
  S* const panel = A_ + b.first + b.first * lda_;
  if constexpr (inject::active_injector::enabled) {
    for (index j = 0; j < b.width; ++j)
      strike(run_.injector, site::panel, {b.first + j, shape_.steps, 0, 1}, panel + j * lda_, m - b.first);
  }
  kernels_.factor_panel(m - b.first, b.width, panel, lda_, tau_ + b.first, t(k), run_.threads, finite, false);
  if constexpr (inject::active_injector::enabled) {
    for (index j = 0; j < b.width; ++j) {
      strike(run_.injector, site::reflector, {b.first + j, std::min(m - 1, shape_.n), 0, 3}, panel + j + 1 + j * lda_, m - b.first - j - 1);
      strike(run_.injector, site::tau, {b.first + j, shape_.steps, 0, 1}, tau_ + b.first + j, 1);
      strike(run_.injector, site::t, {b.first + j, shape_.steps, 0, 2}, t(k) + j * b.width, j + 1);
    }
  }
  copy_v1(k);
}

template <class S>
void blocked_factorizer<S>::end_panel(index k) {
  if constexpr (inject::active_injector::enabled) {
    const layout::block& b = shape_[k];
    const index m = shape_.m;
    S* const panel = A_ + b.first + b.first * lda_;
    for (index j = 0; j < b.width; ++j) {
      strike(run_.injector, site::reflector, {b.first + j, std::min(m - 1, shape_.n), 1, 3}, panel + j + 1 + j * lda_, m - b.first - j - 1);
      strike(run_.injector, site::t, {b.first + j, shape_.steps, 1, 2}, t(k) + j * b.width, j + 1);
    }
  }
}

template <class S>
std::uint64_t blocked_factorizer<S>::hash_block(index b) {
  const layout::block& here = shape_[b];
  abft::result_hash made;
  for (index j = here.first; j < here.first + here.width; ++j) {
    add_numbers(made, A_ + j * lda_, shape_.m);
  }
  return made.bits();
}

// C (rows blocks[k].first … of a matrix) ← H_kᴴ C. If `at` is not null, C is data, and injection may strike it.
template <class S>
void blocked_factorizer<S>::apply(index k, index columns, S* C, index ldc, S* W, const inject::position* at) {
  const block_reflector<S> H = reflector(k);
  kernels_.product(H, columns, C, ldc, W);
  if constexpr (inject::active_injector::enabled) {
    if (at != nullptr) strike(run_.injector, site::product, *at, W, H.width * columns);
  }
  kernels_.update(H, true, columns, W, C, ldc);
}

template <class S>
void blocked_factorizer<S>::update_block(index k, index b) {
  const layout::block& here = shape_[b];
  const index row = shape_[k].first;
  const index count = shape_.count();
  S* const C = A_ + row + here.first * lda_;
  // Counts the pairs (k, b), b > k, in order.
  const index pairs = shape_.panels * count - shape_.panels * (shape_.panels + 1) / 2;
  inject::position at{k * count - k * (k + 1) / 2 + b - k - 1, pairs, 0, 1};
  // Splits a wide block, or the only one left, into halves: a thread without other work computes one of them.
  const bool alone = k + 2 == count;
  const index parts = here.width > 64 || (alone && here.width >= 16) ? 2 : 1;
  const index part = (here.width + parts - 1) / parts;
  core::parallel_for(run_.threads, parts, [&](index p, int) {
    const index columns = std::min(part, here.width - p * part);
    core::aligned_buffer<S> W(shape_.panel_width * columns);
    const inject::position mine{at.interval, at.intervals, p, parts};
    apply(k, columns, C + p * part * lda_, lda_, W.data(), &mine);
  });
  if constexpr (inject::active_injector::enabled) {
    for (index j = 0; j < here.width; ++j) {
      at.step = j;
      at.steps = here.width;
      strike(run_.injector, site::trailing, at, C + j * lda_, shape_.m - row);
    }
  }
}

template <class S>
void blocked_factorizer<S>::update_checksums(index k, index first_group, index last_group) {
  const index columns = 2 * (last_group - first_group);
  if (weights_.empty() || columns <= 0) return;
  S* const C = checksums(first_group) + shape_[k].first;
  if (columns <= k_narrow) return apply_narrow(kernels_, run_.threads, reflector(k), true, columns, C, shape_.m);
  core::aligned_buffer<S> W(shape_.panel_width * columns);
  apply(k, columns, C, shape_.m, W.data(), nullptr);
}

template <class S>
void blocked_factorizer<S>::update(index k, index b) {
  if (!shape_.single_group) update_checksums(k, b, b + 1);
  update_block(k, b);
}

template <class S>
void blocked_factorizer<S>::advance(index k, index first, core::function_ref<void()> ahead) {
  const index count = shape_.count();
  const index others = std::max<index>(0, count - first);
  core::parallel_for(run_.threads, 2 + others, [&](index task, int) {
    if (task == 0) {
      ahead();
    } else if (task == 1) {
      shape_.single_group ? update_checksums(k, 0, 1) : update_checksums(k, first, count);
    } else {
      update_block(k, first + task - 2);
    }
  });
}

template <class S>
void blocked_factorizer<S>::end_pass() {
  if constexpr (inject::active_injector::enabled) {
    const index m = shape_.m, n = shape_.n;
    for (index j = 0; j < n; ++j) strike(run_.injector, site::r, {j, n, 0, 1}, A_ + j * lda_, std::min(j + 1, m));
    for (index j = 0; j < std::min(m - 1, n); ++j)
      strike(run_.injector, site::reflector, {j, std::min(m - 1, n), 2, 3}, A_ + j + 1 + j * lda_, m - j - 1);
  }
}

template column_size size_of<float>(const kernels<float>&, index, const float*);
template column_size size_of<double>(const kernels<double>&, index, const double*);
template column_size size_of<std::complex<float>>(const kernels<std::complex<float>>&, index, const std::complex<float>*);
template column_size size_of<std::complex<double>>(const kernels<std::complex<double>>&, index, const std::complex<double>*);
template class blocked_factorizer<float>;
template class blocked_factorizer<double>;
template class blocked_factorizer<std::complex<float>>;
template class blocked_factorizer<std::complex<double>>;

}  // namespace ballast::qr::host
