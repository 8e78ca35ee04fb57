// Builds the tables of a line with vectors along the signal: each vector of them holds what the lanes of a vector of the signal need. Runs
// the steps of such lines.
#include "fft/cpu/along.hpp"

#include <algorithm>
#include <complex>

#include "core/memory.hpp"
#include "fft/cpu/line.hpp"
#include "fft/sites.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "inject/injector.hpp"

namespace ballast::fft::cpu {
namespace {

// Weights in rows: `sums` complex numbers, or with `general` two for each sum, for the real and the imaginary part.
template <class T>
struct rows_of_weights {
  const std::vector<T>& rows;
  std::int64_t sums;
  bool general;

  std::int64_t scalars() const { return static_cast<std::int64_t>(rows.size()) / sums / (general ? 2 : 1); }
  // Returns what scalar s contributes to Re or Im of a sum.
  T at(std::int64_t s, std::int64_t sum, bool imaginary) const {
    const std::int64_t part = s % 2;
    if (general) return rows[static_cast<std::size_t>(s / 2 * 4 * sums + 4 * sum + 2 * part + (imaginary ? 1 : 0))];
    const T* const w = rows.data() + s / 2 * 2 * sums + 2 * sum;
    return part == 0 ? w[imaginary ? 1 : 0] : imaginary ? w[0] : -w[1];
  }
};

// Returns along_weights::vectors for each vector of the scalars of each part of a signal. A part begins with a vector; `middle` is the end
// of the first one.
template <class T>
core::aligned_buffer<T> along_the_signal(const rows_of_weights<T>& weights, std::int64_t middle) {
  const std::int64_t lanes = kernels<T>().lanes, scalars = weights.scalars(), kinds = weights.general ? 2 : 1;
  const auto vectors = [&](std::int64_t count) { return (count + lanes - 1) / lanes; };
  core::aligned_buffer<T> made((vectors(middle) + vectors(scalars - middle)) * kinds * weights.sums * lanes);
  T* to = made.data();
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += lanes) {
      for (std::int64_t i = 0; i < kinds * weights.sums; ++i) {
        for (std::int64_t s = first; s < first + lanes; ++s) *to++ = s < end ? weights.at(s, i / kinds, i % kinds == 1) : T(0);
      }
    }
  };
  part(0, middle);
  part(middle, scalars);
  return made;
}

// Returns the number of signals up to whole tiles.
template <class T>
std::int64_t padded(std::int64_t signals) {
  const std::int64_t lanes = kernels<T>().lanes;
  return (signals + lanes - 1) / lanes * lanes;
}

// Returns n1 of a line of n1 · n2 points in two steps: a power of two near √n, so that the prime factors of n1, then those of n2, are those
// of n in the order of the search for weights. 0: there is none.
template <class T>
std::int64_t first_step_of(std::int64_t points) {
  const std::int64_t lanes = kernels<T>().lanes;
  if (lanes == 1 || points > k_longest_along || !is_direct(points)) return 0;
  std::int64_t best = 0;
  for (std::int64_t n1 = lanes; points % n1 == 0 && n1 * lanes <= points; n1 *= 2) {
    if (points / n1 % lanes == 0 && (best == 0 || n1 * n1 <= points)) best = n1;
  }
  return best;
}

}  // namespace

template <class T>
core::aligned_buffer<T> weights_along(const std::vector<T>& rows, int sums, std::int64_t middle) {
  return along_the_signal(rows_of_weights<T>{rows, sums, false}, middle);
}
template core::aligned_buffer<float> weights_along(const std::vector<float>&, int, std::int64_t);
template core::aligned_buffer<double> weights_along(const std::vector<double>&, int, std::int64_t);

template <class T>
bool along_line<T>::exists(std::int64_t points, bool of_reals) {
  const short_shape shape = kernels<T>().shape_of_short(points);
  return (shape.first != 0 && !(of_reals && shape.only_repeated)) || first_step_of<T>(points) != 0 || (!of_reals && goes_by_groups(points));
}

template <class T>
bool along_line<T>::goes_by_groups(std::int64_t points) {
  return kernels<T>().lanes > 1 && points >= k_shortest_of_groups && points <= k_longest_of_groups &&
         kernels<T>().shape_of_short(points).first == 0 && first_step_of<T>(points) == 0 && is_direct(points);
}

template <class T>
bool along_line<T>::is_repeated(std::int64_t points) {
  if (goes_by_groups(points)) return points <= k_longest_repeated_groups;
  const short_shape shape = kernels<T>().shape_of_short(points);
  return shape.first != 0 && points <= k_longest_repeated && kernels<T>().lanes > shape.columns;
}

template <class T>
along_line<T>::along_line(form kind, std::int64_t n, const std::vector<T> (&input)[2], const std::vector<T> (&output)[2])
    : form_(kind),
      points_(kind == form::complex ? n : n / 2),
      shape_(kernels<T>().shape_of_short(points_)),
      by_groups_(kind == form::complex && goes_by_groups(points_)) {
  if (by_groups_) {
    for (auto* each : {&first_, &second_}) *each = std::make_unique<line<T>>(form::complex, points_, 0, false, false, false);
    stages_ = first_->stages();
    twiddle_steps_ = first_->twiddle_steps();
    return;
  }
  if (!is_short()) {
    const std::int64_t n1 = first_step_of<T>(points_);
    first_ = std::make_unique<line<T>>(form::complex, n1, 0, false);
    second_ = std::make_unique<line<T>>(form::complex, points_ / n1, 0, false);
    stages_ = first_->stages() + second_->stages();
    twiddle_steps_ = first_->twiddle_steps() + second_->twiddle_steps() + 1;
  }
  if (is_short() && shape_.second == 1) stages_ = 1;
  twiddles_ = make_twiddles();
  if (is_repeated(points_)) twins_ = make_twiddles();
  if (kind != form::complex) {
    ++stages_;
    ++twiddle_steps_;
    split_ = core::aligned_buffer<T>(2 * (points_ / 2 + 1));
    for (std::int64_t k = 0; 2 * k <= points_; ++k) {
      const std::complex<wide<T>> w = root_of_unity<wide<T>>(k, n);
      split_[2 * k] = static_cast<T>(w.real());
      split_[2 * k + 1] = static_cast<T>(w.imag());
    }
  }
  for (int swapped = 0; swapped < 2; ++swapped) {
    if (input[swapped].empty()) continue;
    const rows_of_weights<T> in{input[swapped], 2, kind != form::complex}, out{output[swapped], 1, kind == form::real_inverse};
    input_[swapped] = along_the_signal(in, in.scalars());
    output_[swapped] = along_the_signal(out, 2 * second_half(out.scalars() / 2));
  }
}

template <class T>
along_line<T>::~along_line() = default;

template <class T>
core::aligned_buffer<T> along_line<T>::make_twiddles() const {
  const std::int64_t lanes = kernels<T>().lanes;
  if (is_short() && shape_.second == 1) return {};
  core::aligned_buffer<T> made(is_short() ? 2 * (shape_.first - 1) * shape_.second / shape_.columns * lanes : 2 * points_);
  T* to = made.data();
  const auto row = [&](std::int64_t k, std::int64_t column, std::int64_t columns) {
    for (std::int64_t l = 0; l < lanes; ++l) {
      const std::complex<wide<T>> w = root_of_unity<wide<T>>(k * (column + l % columns), points_);
      to[l] = static_cast<T>(w.real());
      to[lanes + l] = static_cast<T>(w.imag());
    }
    to += 2 * lanes;
  };
  if (is_short()) {
    for (std::int64_t column = 0; column < shape_.second; column += shape_.columns) {
      for (std::int64_t k = 1; k < shape_.first; ++k) row(k, column, shape_.columns);
    }
    return made;
  }
  for (std::int64_t first = 0; first < first_->rows_in(); first += lanes) {
    for (std::int64_t column = 0; column < second_->rows_in(); column += lanes) {
      for (std::int64_t k = first; k < first + lanes; ++k) row(k, column, lanes);
    }
  }
  return made;
}

template <class T>
bool along_line<T>::loads_in_order() const {
  return shape_.second <= shape_.columns || shape_.columns == kernels<T>().lanes;
}

template <class T>
bool along_line<T>::stores_in_order() const {
  return shape_.columns == kernels<T>().lanes && shape_.first == shape_.columns;
}

template <class T>
std::int64_t along_line<T>::signals_of_group() const {
  const std::int64_t lanes = kernels<T>().lanes;
  return by_groups_ ? lanes : is_short() ? std::max<std::int64_t>(1, lanes / shape_.columns) : 1;
}

template <class T>
bool along_line<T>::keeps_to(int used) const {
  const int lanes = kernels<T>().lanes;
  if (by_groups_) return used % lanes == 0;
  return !is_short() || form_ == form::real_forward || used * shape_.columns % lanes == 0;
}

template <class T>
std::int64_t along_line<T>::signal_between(std::int64_t i) const {
  const std::int64_t lanes = kernels<T>().lanes, row = 2 * lanes;
  if (by_groups_) return i / row / points_ * lanes + i % lanes;
  // Vectors of as many signals, one after the other, have all of their scalars.
  const std::int64_t together = lanes / shape_.columns;
  return i / (2 * points_ * together) * together + i % lanes / shape_.columns;
}

template <class T>
void along_line<T>::run(short_call<T>& call, bool strikes, const striker<T>& strike) const {
  core::aligned_buffer<T> work, pairs, between;
  if constexpr (inject::active_injector::enabled) {
    if (strikes) {
      const std::int64_t all = 2 * points_ * padded<T>(call.from.used);
      work = core::aligned_buffer<T>(2 * all);
      pairs = core::aligned_buffer<T>(all);
      between = core::aligned_buffer<T>(all);
      call.work = work.data();
      call.pairs = pairs.data();
      call.between = between.data();
    }
  }
  steps at;
  if (form_ == form::complex) {
    run_complex(call, strikes, strike, at);
  } else if (form_ == form::real_forward) {
    T* const to = call.to;
    const std::int64_t stride = call.to_stride;
    call.swapped = false;
    call.stream = false;
    call.to = call.pairs;
    call.to_stride = 2 * points_;
    run_complex(call, strikes, strike, at);
    run_pairs({call.pairs, 2 * points_, call.from.used, points_}, to, stride, strikes, strike, at);
  } else {
    run_pairs(call.from, call.pairs, 2 * points_, strikes, strike, at);
    call.from = {call.pairs, 2 * points_, call.from.used, points_};
    call.swapped = true;
    run_complex(call, strikes, strike, at);
  }
}

template <class T>
bool along_line<T>::repeats(short_call<T> call, const parity_pair& to) const {
  if (by_groups_ || shape_.ragged) {
    const T* const made = call.to;
    call.to = call.pairs;
    repeat(call);
    return kernels<T>().same_bits(call.to, made, call.from.used * call.to_stride, to);
  }
  call.twiddles = twins_.data();
  call.turned = true;
  return kernels<T>().repeat_lines(call, to);
}

template <class T>
void along_line<T>::repeat(short_call<T> call) const {
  call.twiddles = twins_.data();
  call.turned = true;
  if (by_groups_) {
    steps none;
    run_groups(
        call, false, [](auto&&...) {}, none);
    return;
  }
  call.later = {};
  kernels<T>().short_lines(call, short_part::whole);
}

template <class T>
void along_line<T>::run_complex(short_call<T>& call, bool strikes, const striker<T>& strike, steps& at) const {
  if (by_groups_) return run_groups(call, strikes, strike, at);
  core::aligned_buffer<T> struck;
  call.twiddles = twiddles_.data();
  if constexpr (inject::active_injector::enabled) {
    if (strikes) {
      struck = struck_twiddles(strike, at);
      call.twiddles = struck.data();
    }
  }
  is_short() ? run_short(call, strikes, strike, at) : run_stages(call, strikes, strike, at);
}

template <class T>
void along_line<T>::run_short(short_call<T>& call, bool strikes, const striker<T>& strike, steps& at) const {
  const auto& kernel = kernels<T>();
  const int groups = std::max(1, call.from.used * shape_.columns / kernel.lanes);
  if (call.ahead != nullptr) call.ahead->spread(groups);
  if constexpr (inject::active_injector::enabled) {
    if (strikes) {
      kernel.short_lines(call, short_part::first);
      strike_lanes(call.between, call.from.used, strike, site::stage, at.stage++);
      strike_lanes(call.between, call.from.used, strike, site::intermediate, 0);
      kernel.short_lines(call, short_part::second);
      strike(site::stage, at.stage++, call.to, call.from.used * call.to_stride);
      return;
    }
  }
  static_cast<void>(strikes), static_cast<void>(strike), static_cast<void>(at);
  kernel.short_lines(call, short_part::whole);
}

// As many groups at a time as call.work has room for.
template <class T>
void along_line<T>::run_groups(const short_call<T>& call, bool strikes, const striker<T>& strike, steps& at) const {
  const auto& kernel = kernels<T>();
  const line<T>& transform = call.turned ? *second_ : *first_;
  const int all = call.from.used;
  const std::int64_t groups = (all + kernel.lanes - 1) / kernel.lanes, at_once = strikes ? groups : std::min(groups, call.groups);
  T* const x = call.work;
  T* const y = x + at_once * 2 * points_ * kernel.lanes;
  if (call.ahead != nullptr) call.ahead->spread(groups);
  const auto used_lanes = [&](inject::site where, std::int64_t step, T* data, std::int64_t scalars) {
    if (!strikes) return;
    where == site::twiddle ? strike(where, step, data, scalars) : strike_lanes(data, all, strike, where, step);
  };
  const auto most = static_cast<int>(at_once * kernel.lanes);
  short_call<T> part = call;
  for (int first = 0; first < all; first += most) {
    part.from.used = std::min(most, all - first);
    kernel.load_groups(part, x);
    const T* const done = transform.run(x, y, call.swapped, {}, used_lanes, strikes, (part.from.used + kernel.lanes - 1) / kernel.lanes);
    kernel.store_groups(part, done);
    part.from.base += most * call.from.stride;
    part.to += most * call.to_stride;
    if (part.later.to != nullptr) part.later.to += most * call.later.stride;
  }
  if (strikes) {
    at.stage = stages_;
    at.twiddle = twiddle_steps_;
  }
}

// Each signal takes all steps in turn, in the first-level cache, or with `strikes` each step takes all signals.
template <class T>
void along_line<T>::run_stages(short_call<T>& call, bool strikes, const striker<T>& strike, steps& at) const {
  const auto& kernel = kernels<T>();
  const std::int64_t lanes = kernel.lanes, n1 = first_->rows_in(), n2 = second_->rows_in();
  const int together = strikes ? call.from.used : 1;
  T* const x = call.work;
  T* const y = call.work + together * 2 * points_;
  if (call.ahead != nullptr) call.ahead->spread(call.from.used);
  const auto in_turn = [&](inject::site where, std::int64_t step, T* data, std::int64_t scalars) {
    if (where == site::stage)
      strike(where, at.stage + step, data, scalars);
    else if (where == site::twiddle)
      strike(where, at.twiddle + step, data, scalars);
    else if (at.stage > 0)
      strike(where, step, data, scalars);  // intermediate: the second step has it alone
  };
  const auto step_of = [&](const line<T>& part, T* from, T* to, std::int64_t tiles) {
    T* const done = part.run(from, to, call.swapped, {}, in_turn, strikes, tiles);
    if (strikes) {
      at.stage += part.stages();
      at.twiddle += part.twiddle_steps();
    }
    return done;
  };
  const auto other = [&](const T* one) { return one == x ? y : x; };
  for (int first = 0; first < call.from.used; first += together) {
    for (int l = 0; l < together; ++l) {
      const T* const from = call.from.base + (first + l) * call.from.stride;
      for (std::int64_t column = 0; column < n2; column += lanes)
        kernel.load_columns(from + 2 * column, 2 * n2, static_cast<int>(lanes), n1, x + 2 * (l * points_ + column * n1),
                            encoder<T>{.parity = false});
      if (call.ahead != nullptr) call.ahead->step();
      call.later.bring(first + l, 1);
    }
    T* const columns = step_of(*first_, x, y, together * n2 / lanes);
    T* const turned = other(columns);
    for (int l = 0; l < together; ++l)
      kernel.turn_rows(columns + l * 2 * points_, turned + l * 2 * points_, n1, n2, call.twiddles, call.swapped);
    const T* const rows = step_of(*second_, turned, columns, together * n1 / lanes);
    for (int l = 0; l < together; ++l) {
      for (std::int64_t row = 0; row < n1; row += lanes)
        kernel.store_columns(rows + 2 * (l * points_ + row * n2), n2, static_cast<int>(lanes),
                             call.to + (first + l) * call.to_stride + 2 * row, 2 * n1, false);
    }
  }
}

// The step between the half spectrum and the spectrum of the pairs, of all signals.
template <class T>
void along_line<T>::run_pairs(const signals_of<T>& from, T* to, std::int64_t stride, bool strikes, const striker<T>& strike,
                              steps& at) const {
  constexpr T k_one[2] = {1, 0};
  const bool join = form_ == form::real_inverse;
  const T* fine = split_.data();
  core::vector<T> struck;
  if constexpr (inject::active_injector::enabled) {
    if (strikes) {
      struck.assign(split_.data(), split_.data() + split_.size());
      // The factor of k = 0 is not used.
      strike(site::twiddle, at.twiddle++, struck.data() + 2, static_cast<std::int64_t>(struck.size()) - 2);
      fine = struck.data();
    }
  }
  for (int l = 0; l < from.used; ++l) {
    const T* const x = from.base + l * from.stride;
    T* const y = to + l * stride;
    const pair_call<T> call{x, x + points_, points_, 0, points_ / 2 + 1, k_one, fine, join};
    kernels<T>().make_pairs(call, {y, y + points_});
  }
  if constexpr (inject::active_injector::enabled) {
    if (strikes) strike(site::stage, at.stage++, to, from.used * stride);
  }
}

// Returns the factors between the steps after the strikes at them. Those of column 0 and of row 0 are 1 and are not struck.
template <class T>
core::aligned_buffer<T> along_line<T>::struck_twiddles(const striker<T>& strike, steps& at) const {
  core::aligned_buffer<T> struck(twiddles_.size());
  core::vector<T> factors;
  const std::int64_t lanes = kernels<T>().lanes;
  const auto trivial = [&](std::int64_t i) {
    const std::int64_t row = i / (2 * lanes), lane = i % lanes;
    if (is_short()) return row < shape_.first - 1 && lane % shape_.columns == 0;
    const std::int64_t block = row / lanes, across = second_->rows_in() / lanes;
    return (block < across && row % lanes == 0) || (block % across == 0 && lane == 0);
  };
  for (std::int64_t i = 0; i < twiddles_.size(); ++i) {
    if (!trivial(i)) factors.push_back(twiddles_[i]);
  }
  strike(site::twiddle, at.twiddle++, factors.data(), static_cast<std::int64_t>(factors.size()));
  const T* next = factors.data();
  for (std::int64_t i = 0; i < twiddles_.size(); ++i) struck[i] = trivial(i) ? twiddles_[i] : *next++;
  return struck;
}

// Strikes `used` signals in rows of vectors (signal_between).
template <class T>
void along_line<T>::strike_lanes(T* rows, int used, const striker<T>& strike, inject::site where, std::int64_t step) const {
  const std::int64_t scalars = 2 * points_ * padded<T>(used);
  const auto is_used = [&](std::int64_t i) { return signal_between(i) < used; };
  core::vector<T> compact;
  for (std::int64_t i = 0; i < scalars; ++i) {
    if (is_used(i)) compact.push_back(rows[i]);
  }
  strike(where, step, compact.data(), static_cast<std::int64_t>(compact.size()));
  const T* next = compact.data();
  for (std::int64_t i = 0; i < scalars; ++i) {
    if (is_used(i)) rows[i] = *next++;
  }
}

template class along_line<float>;
template class along_line<double>;

}  // namespace ballast::fft::cpu
