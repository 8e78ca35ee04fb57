// Builds the tables of a line in more precision than the data and rounds them once; and runs its steps in order.
#include "fft/cpu/line.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "core/memory.hpp"
#include "fft/sites.hpp"
#include "fft/tables/cyclic.hpp"
#include "fft/tables/real_order.hpp"
#include "fft/thresholds.hpp"
#include "inject/injector.hpp"

namespace ballast::fft::cpu {

namespace {

template <class T, class W>
void append(std::vector<T>& to, const std::complex<W>& z) {
  to.push_back(static_cast<T>(z.real()));
  to.push_back(static_cast<T>(z.imag()));
}

bool is_fixed(std::int64_t radix) { return std::ranges::find(k_fixed_radices, radix) != std::end(k_fixed_radices); }

// Returns the radices of n in the order of the stages: products of neighbours among its prime factors in ascending order, which is that of
// the search for weights. The fewest stages, as each goes through the second-level cache; of these the fastest butterflies (measured: 640
// points take 8.9 units of time by 8 · 8 · 10 and 8.0 by 16 · 8 · 5); large radices first.
std::vector<int> radices(std::int64_t n) {
  const std::vector<std::int64_t> primes = prime_factors(n);
  struct way {
    std::size_t stages = 0;
    std::int64_t cost = 0, first = 1;
    std::size_t next = 0;
  };
  std::vector<way> best(primes.size() + 1);  // for the primes from each place on
  for (std::size_t from = primes.size(); from-- > 0;) {
    std::int64_t radix = 1;
    for (std::size_t next = from; next < primes.size(); ++next) {
      radix *= primes[next];
      // Not a line of one stage with odd factors: all of its factors would be constants of the code.
      const bool alone = radix == n && primes.back() > 2;
      if (next > from && (alone || !is_fixed(radix))) continue;
      const way found{best[next + 1].stages + 1, best[next + 1].cost + radix * (radix == 6 || radix == 10 || radix == 12 ? 2 : 1), radix,
                      next + 1};
      const auto key = [](const way& one) { return std::make_tuple(one.stages, one.cost, -one.first); };
      if (next == from || key(found) < key(best[from])) best[from] = found;
    }
  }
  std::vector<int> found;
  for (std::size_t at = 0; at < primes.size(); at = best[at].next) found.push_back(static_cast<int>(best[at].first));
  return found;
}

}  // namespace

bool is_direct(std::int64_t n) { return convolved_part(n) == 1; }

template <class T>
line<T>::line(form what, std::int64_t n, std::uint64_t stream, bool protect, bool half_spectrum, bool has_along, std::int64_t together,
              double inputs)
    : form_(what), half_spectrum_(half_spectrum), points_(static_cast<double>(n)) {
  length_ = what == form::complex ? core::checked_product(n, together) : n / 2;
  rows_in_ = what == form::real_inverse ? length_ + 1 : length_;
  rows_out_ = what == form::real_forward ? length_ + 1 : length_;
  std::int64_t points = length_ / together;  // points of each complex transform
  if (what != form::complex && n % 2 == 1) {
    make_real_stage(n);
    points = n / real_.radix;
    length_ = points * real_.transforms;
    rows_in_ = rows_out_ = n / 2 + 1;
  } else if (what != form::complex) {
    for (std::int64_t k = 0; k <= length_; ++k) append(split_, root_of_unity<wide<T>>(k, n));
  }
  const std::int64_t convolved = convolved_part(points);
  make_stages({points}, length_, together * real_.transforms, plan_);
  if (is_cyclic(convolved))
    make_convolution_of_prime(convolved);
  else if (convolved > 1)
    make_convolution(convolved);
  for (const auto* stages : {&plan_, &convolution_.inner[0], &convolution_.inner[1]}) {
    for (const stage& each : *stages) {
      ++stages_;
      butterflies_ += each.rows / each.radix;
      twiddled_ += each.twiddles >= 0 || each.roots >= 0 ? 1 : 0;
    }
  }
  if (real_.radix > 1) {
    ++stages_;
    ++twiddled_;
    butterflies_ += points;
  }
  rows_scratch_ = std::max({rows_in_, rows_out_, length_, convolution_.padded});
  if (protect) make_weights(n, stream, inputs);
  if (has_along && together == 1 && !half_spectrum && real_.radix == 1 && along_line<T>::exists(length_, what != form::complex))
    along_.emplace(what, n, input_weights_, output_weights_);
}

// Appends the cosines and sines of an odd butterfly.
template <class T>
void line<T>::append_roots(std::int64_t radix) {
  for (std::int64_t k = 1; k <= radix / 2; ++k) {
    for (std::int64_t j = 1; j <= radix / 2; ++j) append(roots_, std::conj(root_of_unity<wide<T>>(j * k, radix)));
  }
}

// Appends the stages of a transform over each coprime factor of rows/s in turn, without the part that is a convolution. s is the product of
// the completed radices.
template <class T>
void line<T>::make_stages(const std::vector<std::int64_t>& coprime, std::int64_t rows, std::int64_t s, std::vector<stage>& to) {
  const std::int64_t all = rows / s;
  std::int64_t others = all;
  for (std::int64_t left : coprime) {
    others /= left;
    for (const int radix : radices(left / convolved_part(left))) {
      stage made{radix, rows, s, -1, -1, 0, 0};
      if (!is_fixed(radix) || (radix % 2 == 1 && radix == all)) {
        made.roots = static_cast<std::int64_t>(roots_.size());
        append_roots(radix);
      }
      if (left > radix) {
        made.twiddles = static_cast<std::int64_t>(twiddles_.size());
        for (std::int64_t i = 0; i < left / radix * others; ++i) {
          for (std::int64_t k = 1; k < radix; ++k) append(twiddles_, root_of_unity<wide<T>>(i / others * k, left));
        }
        made.count = static_cast<std::int64_t>(twiddles_.size()) - made.twiddles;
        made.trivial = 2 * (radix - 1) * others;
      }
      to.push_back(made);
      left /= radix;
      s *= radix;
    }
  }
}

// Builds the stage between n real numbers and half of the transforms that complex numbers would have. Number f of the spectrum is number
// f / radix of transform f % radix; those of the other half are conjugates.
template <class T>
void line<T>::make_real_stage(std::int64_t n) {
  const std::int64_t radix = real_radix(n), m = n / radix, transforms = radix / 2 + 1;
  real_.radix = radix;
  real_.transforms = transforms;
  real_.of = {static_cast<int>(radix),
              m * transforms,
              1,
              static_cast<std::int64_t>(twiddles_.size()),
              static_cast<std::int64_t>(roots_.size()),
              0,
              0};
  append_roots(radix);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t k = 1; k < transforms; ++k) append(twiddles_, root_of_unity<wide<T>>(i * k, n));
  }
  // The factors of the first butterfly are 1. If there is no other, those of the butterfly are struck.
  real_.of.count = m > 1 ? static_cast<std::int64_t>(twiddles_.size()) - real_.of.twiddles : 0;
  real_.of.trivial = 2 * (transforms - 1);
  real_.order = form_ == form::real_forward ? spectrum_order(n, radix) : transforms_order(n, radix);
}

// Builds the tables of Bluestein's convolution for the last factor of the line.
template <class T>
void line<T>::make_convolution(std::int64_t p) {
  convolution_.together = length_ / p;
  const std::int64_t length = smooth_length(2 * p - 1);
  convolution_.padded = convolution_.together * length;
  make_stages({length}, convolution_.padded, convolution_.together, convolution_.inner[0]);
  convolution_.inner[1] = convolution_.inner[0];
  for (std::int64_t j = 0; j < p; ++j) append(convolution_.chirp, chirp<wide<T>>(j, p));
  for (const auto& z : chirp_filter<wide<T>>(p, length)) append(convolution_.filter, z / static_cast<wide<T>>(length));
}

template <class T>
void line<T>::make_convolution_of_prime(std::int64_t p) {
  cyclic_convolution made = make_cyclic(p);
  convolution_.together = length_ / p;
  convolution_.padded = length_ - convolution_.together;
  make_stages(made.factors, convolution_.padded, convolution_.together, convolution_.inner[0]);
  std::ranges::reverse(made.factors);
  make_stages(made.factors, convolution_.padded, convolution_.together, convolution_.inner[1]);
  for (const auto& z : cyclic_filter<wide<T>>(made)) append(convolution_.filter, z);
  convolution_.order_in = std::move(made.input);
  convolution_.order_out = std::move(made.output);
}

template <class T>
void line<T>::make_weights(std::int64_t n, std::uint64_t stream, double inputs) {
  const auto made = make_axis_weights<T>(n, choose_weights(form_, n, stream, inputs), rows_out_);
  // The stored half of a spectrum stands for the whole: the norm of the whole is up to √2 times the norm of the half.
  const bool half = form_ == form::real_inverse || half_spectrum_;
  limits_.sensitivity = (half ? std::sqrt(2.0) : 1) * (convolution_.padded > 0 ? k_convolution_sensitivity : 1);
  for (auto& copy : limits_.copies) {
    const double kappa = k_kappa * limits_.sensitivity;
    copy.underflow = thresholds::residual<T>(points_, 0, kappa);
    copy.factor = thresholds::residual<T>(points_, 1, kappa) - copy.underflow;
    copy.output_underflow = thresholds::output_underflow<T>(points_);
  }
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (const bool swapped : {false, true}) {
    auto& in = input_weights_[swapped];
    auto& out = output_weights_[swapped];
    const auto turned = [&](std::complex<wide<T>> z) { return swapped && form_ == form::complex ? std::conj(z) : z; };
    for (std::int64_t j = 0; j < rows_encoded(); ++j) {
      for (int v = 0; v < k_vectors; ++v) {
        const auto& b = made.b[v];
        if (form_ == form::real_forward) {
          append(in, b[at(2 * j)]);
          append(in, 2 * j + 1 < n ? b[at(2 * j + 1)] : 0);
        } else if (half) {
          // z_j stands for itself and for its mirror image conj(z_j); the weights of an inverse transform are b in reverse order.
          const auto mirror = b[at((n - j) % n)];
          const auto own = form_ == form::complex ? turned(b[at(j)]) : mirror;
          const auto other = form_ == form::complex ? turned(mirror) : b[at(j)];
          const auto difference = own - other;
          append(in, j == 0 || 2 * j == n ? own : own + other);
          append(in, std::complex<wide<T>>(-difference.imag(), difference.real()));
        } else {
          append(in, turned(b[at(j)]));
        }
      }
    }
    for (std::int64_t k = 0; k < rows_out_; ++k) {
      const auto& a = made.a[0];
      if (form_ == form::real_inverse) {
        append(out, a[at(2 * k)]);
        append(out, 2 * k + 1 < n ? a[at(2 * k + 1)] : 0);
      } else {
        append(out, turned(a[at(k)]));
      }
    }
  }
}

// Subnormal numbers are multiplied only if they have to be: processors of Intel take more than 100 cycles for each of these products.
template <class T>
lane_limits line<T>::limits(double scale) const {
  lane_limits made;
  for (int i = 0; i < 2; ++i) {
    made.factor[i] = limits_.copies[i].factor * scale;
    made.least[i] = (scale == 1 ? limits_.copies[i].underflow : limits_.copies[i].underflow * scale) + limits_.copies[i].output_underflow;
  }
  return made;
}

template <class T>
output_sum<T> line<T>::output_weights(bool swapped, lane_sums* sums) const {
  output_sum<T> made;
  made.weights = output_weights_[swapped].data();
  made.general = form_ == form::real_inverse;
  made.sums = sums;
  made.swapped = swapped;
  return made;
}

template <class T>
encoder<T> line<T>::input_weights(bool swapped, lane_sums* sums) const {
  return {input_weights_[swapped].data(), form_ != form::complex || half_spectrum_, sums};
}

// Runs a stage by run(factors, roots), and shows its numbers and factors to `strike`.
template <class T>
template <class Run>
void line<T>::run_stage(const stage& now, T* x, std::int64_t rows_in, T* y, std::int64_t rows_out, steps& at, const striker<T>& strike,
                        const Run& run) const {
  const T* twiddles = now.twiddles < 0 ? nullptr : twiddles_.data() + now.twiddles;
  const T* roots = now.roots < 0 ? nullptr : roots_.data() + now.roots;
  if constexpr (inject::active_injector::enabled) {
    const std::int64_t row = 2 * kernels<T>().lanes;
    if (at.stage == stages_ - 1) strike(site::intermediate, 0, x, at.tiles * rows_in * row);
    core::vector<T> struck;
    if (at.strikes_factors) {
      // If there are no twiddle factors, the roots of a butterfly are struck instead.
      const std::int64_t half = now.roots < 0 ? 0 : now.radix / 2;
      const bool strikes_roots = now.count == 0;
      const T* const factors = strikes_roots ? roots : twiddles;
      struck.assign(factors, factors + (strikes_roots ? 2 * half * half : now.count));
      const std::int64_t trivial = strikes_roots ? 0 : now.trivial;
      if (!struck.empty()) strike(site::twiddle, at.twiddle++, struck.data() + trivial, static_cast<std::int64_t>(struck.size()) - trivial);
      (strikes_roots ? roots : twiddles) = struck.data();
    }
    run(twiddles, roots);
    strike(site::stage, at.stage++, y, at.tiles * rows_out * row);
  } else {
    run(twiddles, roots);
  }
}

template <class T>
T* line<T>::run_stages(const std::vector<stage>& stages, T* x, T* y, bool swapped, steps& at, read_ahead& ahead,
                       const striker<T>& strike) const {
  for (const stage& now : stages) {
    if (at.to != nullptr && &now == &stages.back()) {
      run_stage(now, x, now.rows, at.to, now.rows, at, strike,
                [&](const T*, const T*) { kernels<T>().twiddled_stage(now.radix, x, at.to, now.rows, at.factors, swapped, ahead); });
      return at.to;
    }
    run_stage(now, x, now.rows, y, now.rows, at, strike, [&](const T* factors, const T* roots) {
      kernels<T>().stage(now.radix, x, y, now.rows, now.s, at.tiles, factors, roots, swapped, ahead);
    });
    std::swap(x, y);
  }
  return x;
}

template <class T>
T* line<T>::convolve(T* x, T* y, bool swapped, steps& at, read_ahead& ahead, const striker<T>& strike) const {
  const auto& kernel = kernels<T>();
  const auto other = [&](const T* p) { return p == x ? y : x; };
  kernel.multiply_rows(x, y, length_, convolution_.padded, convolution_.chirp.data(), convolution_.together, swapped);
  T* done = run_stages(convolution_.inner[0], y, x, swapped, at, ahead, strike);
  kernel.multiply_rows(done, done, convolution_.padded, convolution_.padded, convolution_.filter.data(), convolution_.together, swapped);
  done = run_stages(convolution_.inner[1], done, other(done), !swapped, at, ahead, strike);
  kernel.multiply_rows(done, done, length_, length_, convolution_.chirp.data(), convolution_.together, swapped);
  return done;
}

template <class T>
T* line<T>::convolve_cyclically(T* x, T* y, bool swapped, steps& at, read_ahead& ahead, const striker<T>& strike) const {
  const auto& kernel = kernels<T>();
  const auto other = [&](const T* p) { return p == x ? y : x; };
  const std::int64_t row = 2 * kernel.lanes, first = convolution_.together * row;
  const auto points = static_cast<std::int64_t>(convolution_.order_in.size());
  kernel.permute_rows(x, y, points, convolution_.together, convolution_.order_in.data());
  T* const alone = y + convolution_.padded * row;  // x_0, then y_0: after the rows of the transforms
  T* done = run_stages(convolution_.inner[0], y, x, swapped, at, ahead, strike);
  kernel.mix_rows(done, alone, convolution_.together, convolution_.filter[0]);
  kernel.multiply_rows(done + first, done + first, convolution_.padded - convolution_.together, convolution_.padded - convolution_.together,
                       convolution_.filter.data() + 2, convolution_.together, swapped);
  done = run_stages(convolution_.inner[1], done, other(done), !swapped, at, ahead, strike);
  T* const to = other(done);
  constexpr std::int64_t k_first[] = {0};
  kernel.permute_rows(alone, to, 1, convolution_.together, k_first);
  kernel.permute_rows(done, to + first, points - 1, convolution_.together, convolution_.order_out.data() + 1);
  return to;
}

template <class T>
bool line<T>::multiplies_at_last(const row_factors<T>& factors) const {
  if (form_ != form::complex || convolution_.padded > 0 || plan_.empty()) return false;
  const stage& last = plan_.back();
  return last.roots < 0 && (last.s >> factors.shift << factors.shift) == last.s;
}

template <class T>
T* line<T>::run(T* x, T* y, bool swapped, read_ahead ahead, const striker<T>& strike, bool strikes_factors, std::int64_t tiles) const {
  steps at;
  at.strikes_factors = strikes_factors;
  at.tiles = tiles;
  return run_all(x, y, swapped, ahead, strike, at);
}

template <class T>
T* line<T>::run_to(T* x, T* y, bool swapped, read_ahead ahead, const striker<T>& strike, bool strikes_factors,
                   const row_factors<T>& factors, T* to) const {
  steps at;
  at.strikes_factors = strikes_factors;
  at.factors = factors;
  at.to = to;
  return run_all(x, y, swapped, ahead, strike, at);
}

template <class T>
T* line<T>::run_all(T* x, T* y, bool swapped, read_ahead ahead, const striker<T>& strike, steps& at) const {
  ahead.per_step = butterflies_ > 0 ? 2 * ahead.lines() / butterflies_ + 1 : ahead.lines();
  const auto& kernel = kernels<T>();
  if (form_ == form::real_forward) swapped = false;
  const bool odd = has_odd_reals();
  const auto real_stage = [&](T* from, T* to) {
    const bool inverse = form_ == form::real_inverse;
    run_stage(real_.of, from, inverse ? length_ : rows_in_, to, inverse ? rows_out_ : length_, at, strike,
              [&](const T* factors, const T* roots) {
                kernel.real_stage(real_.of.radix, from, to, length_ / real_.transforms, factors, roots, inverse, ahead);
              });
  };
  if (form_ == form::real_inverse) {
    if (odd)
      kernel.mirror_rows(x, y, length_, real_.order.data());
    else
      kernel.join_real(x, y, length_, split_.data());
    std::swap(x, y);
    swapped = true;
  } else if (odd) {
    real_stage(x, y);
    std::swap(x, y);
  }
  const auto other = [&](const T* p) { return p == x ? y : x; };
  T* done = run_stages(plan_, x, y, swapped, at, ahead, strike);
  if (convolution_.padded > 0)
    done = convolution_.order_in.empty() ? convolve(done, other(done), swapped, at, ahead, strike)
                                         : convolve_cyclically(done, other(done), swapped, at, ahead, strike);
  if constexpr (inject::active_injector::enabled) {
    if (stages_ == 0) {
      strike(site::intermediate, 0, done, length_ * 2 * kernel.lanes);
      strike(site::stage, 0, done, length_ * 2 * kernel.lanes);
    }
  }
  if (form_ == form::complex) return done;
  T* const to = other(done);
  if (form_ == form::real_forward && odd)
    kernel.mirror_rows(done, to, rows_out_, real_.order.data());
  else if (form_ == form::real_forward)
    kernel.split_real(done, to, length_, split_.data());
  else if (odd)
    real_stage(done, to);
  else
    return done;
  return to;
}

template class line<float>;
template class line<double>;

}  // namespace ballast::fft::cpu
