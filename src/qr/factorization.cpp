// Driver of the protected QR factorization.
// Layer: algorithm. See factorization.hpp.
#include "qr/factorization.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core/counter_rng.hpp"
#include "core/parallel.hpp"

namespace ballast::qr {

using inject::site;

index panel_width(index steps, bool reference) {
  if (steps <= 1) return 1;
  const index half = (steps + 1) / 2;
  if (reference) return std::min<index>(half, 16);
  const index wanted = steps >= 2048 ? 128 : steps >= 192 ? 64 : 32;
  return std::min(half, wanted);
}

namespace {

// Rows that one task encodes: a fixed number, so that results do not depend on the threads.
constexpr index k_encode_rows = 512;

// Checksum columns up to this many are updated by sums over slabs; more of them by the backend's products. For two columns of 200,000 rows
// a BLAS product takes 3.7 ms, the sums 1.1 ms.
constexpr index k_narrow = 8;

// Large pages for a large buffer: its page faults would cost as much as writing it.
template <class S>
core::aligned_buffer<S> large_buffer(index size) {
  core::aligned_buffer<S> made(size);
#if defined(__linux__)
  constexpr std::uintptr_t page = 1 << 21;
  const auto first = (reinterpret_cast<std::uintptr_t>(made.data()) + page - 1) / page * page;
  const auto last = reinterpret_cast<std::uintptr_t>(made.data() + size) / page * page;
  if (last > first + page) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // advice: failure changes nothing
#endif
  return made;
}

}  // namespace

template <class S>
factorization<S>::factorization(const context& run, std::string_view scheme, index m, index n, S* A, index lda, S* tau,
                                matrix_view<const S> source)
    : kernels_(kernels_of<S>(run.which)),
      run_(run),
      by_update_(scheme == k_qr_update),
      m_(m),
      n_(n),
      steps_(std::min(m, n)),
      A_(A),
      lda_(lda),
      tau_(tau),
      source_(source) {
  nb_ = panel_width(steps_, run.which == backend::reference);
  for (index first = 0; first < n;) {
    block b;
    b.first = first;
    b.panel = first < steps_;
    b.width = std::min(nb_, (b.panel ? steps_ : n) - first);
    b.group = by_update_ ? 0 : static_cast<index>(blocks_.size());
    first += b.width;
    panels_ += b.panel ? 1 : 0;
    blocks_.push_back(b);
  }
  const auto count = static_cast<index>(blocks_.size());
  for (index k = 0; k < panels_; ++k) pairs_ += count - k - 1;
  if (by_update_) {
    groups_.push_back({0, n, 0});
  } else {
    for (const block& b : blocks_) groups_.push_back({b.first, b.width, 0});
  }
}

// ---------------------------------------------------------------------------------------------------------------- setting up

// Column norms; false if A holds Inf or NaN. Columns of extreme size are scaled.
template <class S>
bool factorization<S>::scan() {
  norms_.assign(static_cast<std::size_t>(n_), 0);
  shift_.clear();
  std::vector<int> exponents(static_cast<std::size_t>(n_), 0);
  std::vector<double> scaled_norms(static_cast<std::size_t>(n_), 0);
  std::vector<char> odd(static_cast<std::size_t>(n_), 0);
  core::parallel_for(run_.threads, n_, [&](index j, int) {
    const S* const a = A_ + j * lda_;
    const auto at = static_cast<std::size_t>(j);
    double squares = 0;
    kernels_.squares(m_, 1, a, lda_, &squares);
    if (squares >= 0x1p-900 && squares <= 0x1p900) {
      norms_[at] = std::sqrt(squares);
      exponents[at] = std::ilogb(norms_[at]);
      return;
    }
    // Squares left the range of doubles, or the column is zero.
    largest size;
    for (index i = 0; i < m_; ++i) size.add(static_cast<double>(a[i]));
    const double top = size.value();
    odd[at] = std::isfinite(top) ? 0 : 1;
    if (odd[at] != 0 || top == 0) return;
    exponents[at] = std::ilogb(top);
    squares = 0;
    for (index i = 0; i < m_; ++i) {
      const double each = std::ldexp(static_cast<double>(a[i]), -exponents[at]);
      squares += each * each;
    }
    scaled_norms[at] = std::sqrt(squares);
  });
  if (std::any_of(odd.begin(), odd.end(), [](char o) { return o != 0; })) return false;
  const bool extreme = std::any_of(exponents.begin(), exponents.end(), [](int e) { return std::abs(e) > k_comfortable_exponent<S>; });
  if (!extreme) return true;
  shift_.assign(static_cast<std::size_t>(n_), 0);
  for (std::size_t j = 0; j < shift_.size(); ++j) {
    if (std::abs(exponents[j]) <= k_comfortable_exponent<S>) continue;
    shift_[j] = -exponents[j];
    norms_[j] = scaled_norms[j] > 0 ? scaled_norms[j] : std::ldexp(norms_[j], -exponents[j]);
  }
  return true;
}

template <class S>
S factorization<S>::from_source(index i, index j) const {
  const S value = source_(i, j);
  return shift_.empty() || shift_[static_cast<std::size_t>(j)] == 0 ? value : std::ldexp(value, shift_[static_cast<std::size_t>(j)]);
}

template <class S>
void factorization<S>::restore(bool scaled) {
  core::parallel_for(run_.threads, n_, [&](index j, int) {
    for (index i = 0; i < m_; ++i) A_[i + j * lda_] = scaled ? from_source(i, j) : source_(i, j);
  });
}

template <class S>
void factorization<S>::unscale() {
  if (shift_.empty()) return;
  for (index j = 0; j < n_; ++j) {
    const int e = shift_[static_cast<std::size_t>(j)];
    if (e == 0) continue;
    for (index i = 0; i < std::min(j + 1, m_); ++i) A_[i + j * lda_] = std::ldexp(A_[i + j * lda_], -e);
  }
}

// Checksum columns and the certificate's product for rows top … top + count − 1 of X; keeps a copy of them if asked.
template <class S>
void factorization<S>::encode_rows(index top, index count, matrix_view<const S> X, bool keep) {
  std::vector<double> y(static_cast<std::size_t>(3 * count), 0.0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const group& here = groups_[g];
    std::fill(y.begin(), y.begin() + 2 * count, 0.0);
    kernels_.subtract(count, here.width, &X(top, here.first), X.column_stride, 3, weights_.data() + here.first, n_, y.data(), count);
    S* const c = C_.data() + top + 2 * static_cast<index>(g) * m_;
    for (index i = 0; i < count; ++i) {
      c[i] = static_cast<S>(-y[static_cast<std::size_t>(i)]);
      c[i + m_] = static_cast<S>(-y[static_cast<std::size_t>(i + count)]);
    }
    if (keep) {
      for (index j = here.first; j < here.first + here.width; ++j) std::copy_n(&X(top, j), count, copy_.data() + top + j * m_);
    }
  }
  for (index i = 0; i < count; ++i) product_[static_cast<std::size_t>(top + i)] = -y[static_cast<std::size_t>(2 * count + i)];
}

template <class S>
void factorization<S>::encode() {
  const bool first_time = weights_.empty();
  if (first_time) {
    weights_.resize(static_cast<std::size_t>(3 * n_));
    double total = 0;
    for (group& g : groups_) {
      double squares = 0;
      for (index l = 0; l < g.width; ++l) {
        const index j = g.first + l;
        const double norm = norms_[static_cast<std::size_t>(j)];
        const double d = equilibrating(norm);
        const double random = random_signed(k_certificate_stream, static_cast<std::uint64_t>(j));
        weights_[static_cast<std::size_t>(j)] = d;
        weights_[static_cast<std::size_t>(n_ + j)] = d * abft::equispaced_weight(l, g.width);
        weights_[static_cast<std::size_t>(2 * n_ + j)] = d * random;
        squares += (d * norm) * (d * norm);
        total += (d * norm * random) * (d * norm * random);
      }
      g.norm = std::sqrt(squares);
    }
    product_norm_ = std::sqrt(total);
    C_ = large_buffer<S>(core::checked_product(m_, 2 * static_cast<index>(groups_.size())));
    product_.resize(static_cast<std::size_t>(m_));
    row_weights_ = large_buffer<double>(m_);
    core::parallel_for(run_.threads, (m_ + k_encode_rows - 1) / k_encode_rows, [&](index t, int) {
      for (index i = t * k_encode_rows; i < std::min((t + 1) * k_encode_rows, m_); ++i) {
        row_weights_[i] = abft::random_weight(k_weight_seed, k_checkpoint_stream, static_cast<std::uint64_t>(i));
      }
    });
    carried_ = core::aligned_buffer<double>(m_);
    next_ = core::aligned_buffer<double>(m_);
  }
  const bool keep = first_time && repairs_ && source_.data == nullptr;
  if (keep) copy_ = large_buffer<S>(core::checked_product(m_, n_));
  const auto here = column_major<const S>(A_, m_, n_, lda_);
  core::parallel_for(run_.threads, (m_ + k_encode_rows - 1) / k_encode_rows,
                     [&](index t, int) { encode_rows(t * k_encode_rows, std::min(k_encode_rows, m_ - t * k_encode_rows), here, keep); });
  if (keep) source_ = column_major<const S>(copy_.data(), m_, n_);
  if (!first_time) return;
  // Columns that point the same way add up in their checksum, and their roundings with them.
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    double squares[2] = {};
    kernels_.squares(m_, 2, C_.data() + 2 * static_cast<index>(g) * m_, m_, squares);
    // With one group for the whole matrix, hundreds of equal columns make the same error.
    groups_[g].norm += (by_update_ ? 4 : 1) * std::sqrt(std::max(squares[0], squares[1]));
  }
  double squares = 0;
  for (const double each : product_) squares += each * each;
  product_norm_ += std::sqrt(squares);
}

// --------------------------------------------------------------------------------------------------------- the factorization

template <class S>
block_reflector<S> factorization<S>::reflector(index k) const {
  const block& b = blocks_[static_cast<std::size_t>(k)];
  return {m_ - b.first, b.width, V1_.data() + k * nb_ * nb_, A_ + b.first + b.width + b.first * lda_, lda_, T_.data() + k * nb_ * nb_};
}

// V1 with its ones and zeros, from the panel's storage.
template <class S>
void factorization<S>::copy_v1(index k) {
  const block& b = blocks_[static_cast<std::size_t>(k)];
  S* const V1 = V1_.data() + k * nb_ * nb_;
  const S* const a = A_ + b.first + b.first * lda_;
  for (index j = 0; j < b.width; ++j) {
    for (index i = 0; i < b.width; ++i) V1[i + j * b.width] = i < j ? S(0) : i == j ? S(1) : a[i + j * lda_];
  }
}

// C (rows blocks_[k].first … of a matrix) ← H_kᵀ C. `at` not null: these are data, open to injection.
template <class S>
void factorization<S>::apply(index k, index columns, S* C, index ldc, S* W, const inject::place* at) {
  const block_reflector<S> H = reflector(k);
  kernels_.product(H, columns, C, ldc, W);
  if constexpr (inject::active_injector::enabled) {
    if (at != nullptr) run_.injector.strike(site::qr_product, *at, W, H.width * columns);
  }
  kernels_.update(H, true, columns, W, C, ldc);
}

template <class S>
void factorization<S>::update_block(index k, index b) {
  const block& here = blocks_[static_cast<std::size_t>(b)];
  const index row = blocks_[static_cast<std::size_t>(k)].first;
  S* const C = A_ + row + here.first * lda_;
  // The pairs (k, b), b > k, in their order.
  const auto count = static_cast<index>(blocks_.size());
  inject::place at{k * count - k * (k + 1) / 2 + b - k - 1, pairs_, 0, 1};
  // Halves of a wide block, or of the only one left: for a thread that has nothing else to do.
  const bool alone = k + 2 == count;
  const index parts = here.width > 64 || (alone && here.width >= 16) ? 2 : 1;
  const index part = (here.width + parts - 1) / parts;
  core::parallel_for(run_.threads, parts, [&](index p, int) {
    const index columns = std::min(part, here.width - p * part);
    core::aligned_buffer<S> W(nb_ * columns);
    const inject::place mine{at.interval, at.intervals, p, parts};
    apply(k, columns, C + p * part * lda_, lda_, W.data(), &mine);
  });
  if constexpr (inject::active_injector::enabled) {
    for (index j = 0; j < here.width; ++j) {
      at.step = j;
      at.steps = here.width;
      run_.injector.strike(site::qr_trailing, at, C + j * lda_, m_ - row);
    }
  }
}

template <class S>
void factorization<S>::update_checksums(index k, index first_group, index last_group) {
  const index columns = 2 * (last_group - first_group);
  if (!protected_ || columns <= 0) return;
  S* const C = C_.data() + blocks_[static_cast<std::size_t>(k)].first + 2 * first_group * m_;
  if (columns <= k_narrow) return update_narrow(k, columns, C);
  core::aligned_buffer<S> W(nb_ * columns);
  apply(k, columns, C, m_, W.data(), nullptr);
}

// Block b as it was after panel upto − 1, from the input.
template <class S>
void factorization<S>::rebuild_block(index b, index upto) {
  const block& here = blocks_[static_cast<std::size_t>(b)];
  for (index j = here.first; j < here.first + here.width; ++j) {
    for (index i = 0; i < m_; ++i) A_[i + j * lda_] = from_source(i, j);
  }
  if (!by_update_) {
    std::vector<double> y(static_cast<std::size_t>(2 * m_), 0.0);
    kernels_.subtract(m_, here.width, A_ + here.first * lda_, lda_, 2, weights_.data() + here.first, n_, y.data(), m_);
    S* const c = C_.data() + 2 * here.group * m_;
    for (index i = 0; i < 2 * m_; ++i) c[i] = static_cast<S>(-y[static_cast<std::size_t>(i)]);
  }
  for (index k = 0; k < upto; ++k) {
    if (!by_update_) update_checksums(k, here.group, here.group + 1);
    update_block(k, b);
  }
}

// Verifies block k on entry, factors it, verifies the result; false if that cannot be had.
template <class S>
bool factorization<S>::prepare_panel(index k) {
  const block& b = blocks_[static_cast<std::size_t>(k)];
  S* const panel = A_ + b.first + b.first * lda_;
  S* const T = T_.data() + k * nb_ * nb_;
  failure first;
  core::aligned_buffer<S> struck;  // the first result that failed, to tell a hit check from hit data
  const auto snapshot = [&](S* to) {
    for (index j = 0; j < b.width; ++j) std::copy_n(A_ + (b.first + j) * lda_, m_, to + j * m_);
  };
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    if (attempt > 0) rebuild_block(k, k);
    failure seen;
    bool good = true;
    if constexpr (inject::active_injector::enabled) {
      if (protected_ && !by_update_)
        run_.injector.strike(site::qr_checksum, {k, static_cast<index>(blocks_.size()), 0, 1}, C_.data() + 2 * b.group * m_, 2 * m_);
    }
    // The first block's checksums were made from it a moment ago; what may have happened since, its panel's check sees.
    if (protected_ && !by_update_ && k > 0) {
      bool corrected = false;
      index place = -1;
      good = block_passes(k, m_, false, {k, static_cast<index>(blocks_.size()) + 1, 5, 6}, "qr.panel_entry", seen, corrected, place);
      if (good && corrected) run_.seen.detected(seen.site, place, seen.residual, seen.threshold, action::corrected, 0);
    }
    if (good || !repairs_) {
      if (!good) run_.seen.detected(seen.site, seen.place, seen.residual, seen.threshold, action::uncorrectable, 0);
      if constexpr (inject::active_injector::enabled) {
        for (index j = 0; j < b.width; ++j)
          run_.injector.strike(site::qr_panel, {b.first + j, steps_, 0, 1}, panel + j * lda_, m_ - b.first);
      }
      kernels_.factor_panel(m_ - b.first, b.width, panel, lda_, tau_ + b.first, T, run_.threads, finite_);
      if constexpr (inject::active_injector::enabled) {
        for (index j = 0; j < b.width; ++j) {
          run_.injector.strike(site::qr_reflector, {b.first + j, std::min(m_ - 1, n_), 0, 3}, panel + j + 1 + j * lda_,
                               m_ - b.first - j - 1);
          run_.injector.strike(site::qr_tau, {b.first + j, steps_, 0, 1}, tau_ + b.first + j, 1);
          run_.injector.strike(site::qr_t, {b.first + j, steps_, 0, 2}, T + j * b.width, j + 1);
        }
      }
      copy_v1(k);
      good = true;
      if (protected_) {
        good = panel_passes(k, seen);
        T_seal_[static_cast<std::size_t>(k)] = seal_of(T, b.width * b.width);
      }
      if constexpr (inject::active_injector::enabled) {
        if (good || !repairs_) {
          for (index j = 0; j < b.width; ++j) {
            run_.injector.strike(site::qr_reflector, {b.first + j, std::min(m_ - 1, n_), 1, 3}, panel + j + 1 + j * lda_,
                                 m_ - b.first - j - 1);
            run_.injector.strike(site::qr_t, {b.first + j, steps_, 1, 2}, T + j * b.width, j + 1);
          }
        }
      }
      if (good && attempt == 0) return true;
    }
    if (good) {
      run_.seen.detected(first.site, first.place, first.residual, first.threshold, action::recomputed, 0);
      core::aligned_buffer<S> now(m_ * b.width);
      snapshot(now.data());
      if (struck.size() != 0 && std::memcmp(now.data(), struck.data(), static_cast<std::size_t>(m_ * b.width) * sizeof(S)) == 0)
        run_.seen.false_alarm();
      return true;
    }
    if (attempt == 0) {
      first = seen;
      if (repairs_ && std::string_view(seen.site) != "qr.panel_entry") {
        struck = core::aligned_buffer<S>(m_ * b.width);
        snapshot(struck.data());
      }
    }
    if (!repairs_) {
      run_.seen.detected(seen.site, seen.place, seen.residual, seen.threshold, action::uncorrectable, 0);
      return true;
    }
  }
  // Not to be had from here: an earlier panel's V or T may have been struck after it was verified, and all followed it.
  restart_ = first;
  return false;
}

// One whole factorization; false: it must be done again from the input, because of restart_.
template <class S>
bool factorization<S>::pass() {
  const auto count = static_cast<index>(blocks_.size());
  const auto group_count = static_cast<index>(groups_.size());
  if (protected_) std::copy(product_.begin(), product_.end(), carried_.data());
  if (!prepare_panel(0)) return false;
  for (index k = 0; k < panels_; ++k) {
    // Task 0 is the lookahead: the next block and its panel; task 1 the checksums; the rest the other blocks.
    bool next_good = true;
    const index next = k + 1;
    const bool lookahead = next < count;
    const index others = std::max<index>(0, count - next - 1);
    core::parallel_for(run_.threads, 2 + others, [&](index task, int) {
      if (task == 0) {
        if (!lookahead) return;
        if (!by_update_) update_checksums(k, next, next + 1);
        update_block(k, next);
        if (next < panels_) next_good = prepare_panel(next);
      } else if (task == 1) {
        if (by_update_) {
          update_checksums(k, 0, group_count);
        } else {
          update_checksums(k, next + 1, group_count);
        }
      } else {
        update_block(k, next + 1 + task - 2);
      }
    });
    if (run_.how.on_progress) run_.how.on_progress({k + 1, panels_, "block column"});
    if (!next_good) return false;
  }
  if constexpr (inject::active_injector::enabled) {
    for (index j = 0; j < n_; ++j) run_.injector.strike(site::qr_r, {j, n_, 0, 1}, A_ + j * lda_, std::min(j + 1, m_));
    for (index j = 0; j < std::min(m_ - 1, n_); ++j)
      run_.injector.strike(site::qr_reflector, {j, std::min(m_ - 1, n_), 2, 3}, A_ + j + 1 + j * lda_, m_ - j - 1);
  }
  return !protected_ || finish();
}

template <class S>
void factorization<S>::run() {
  if (m_ == 0 || n_ == 0) return;
  V1_ = core::aligned_buffer<S>(core::checked_product(panels_, nb_ * nb_));
  T_ = core::aligned_buffer<S>(core::checked_product(panels_, nb_ * nb_));
  T_seal_.resize(static_cast<std::size_t>(panels_));
  checkpoints_.resize(static_cast<std::size_t>(panels_));
  finite_ = scan();
  // Inf and NaN make every sum Inf or NaN: nothing can be verified, and nothing is claimed.
  protected_ = run_.how.protection != protection::off && finite_;
  repairs_ = protected_ && run_.how.protection == protection::correct;
  const bool scaled = !shift_.empty();
  // Scaling must come before encoding, and the way back must not lose what scaling rounds (subnormal remainders): keep the raw input.
  if (scaled && source_.data == nullptr) {
    copy_ = large_buffer<S>(core::checked_product(m_, n_));
    for (index j = 0; j < n_; ++j) std::copy_n(A_ + j * lda_, m_, copy_.data() + j * m_);
    source_ = column_major<const S>(copy_.data(), m_, n_);
  }
  if (scaled) restore(true);
  if (protected_) encode();
  failure first;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    if (attempt > 0) {
      restore(true);
      encode();
    }
    if (pass()) {
      if (attempt > 0) run_.seen.detected(first.site, first.place, first.residual, first.threshold, action::recomputed, 0);
      break;
    }
    if (attempt == 0) first = restart_;
    if (attempt + 1 == k_attempts) run_.seen.detected(first.site, first.place, first.residual, first.threshold, action::uncorrectable, 0);
  }
  if (repairs_ && run_.seen.uncorrectable()) {
    restore(false);
    return;
  }
  unscale();
}

template class factorization<float>;
template class factorization<double>;

}  // namespace ballast::qr
