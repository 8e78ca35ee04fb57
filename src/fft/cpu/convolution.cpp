// The steps of the convolution of one signal: gather, encode, convolve, verify, scatter.
#include "fft/cpu/convolution.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <ballast/error.hpp>

#include "core/at.hpp"
#include "core/format.hpp"
#include "fft/sites.hpp"
#include "fft/thresholds.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

namespace ballast::fft::cpu {

using core::at;

namespace {

// Returns the smallest 2^k or 3·2^k that holds a convolution of n points.
std::int64_t length_of(std::int64_t n) {
  // Longer convolutions, of n above 2^27, would need tables of more than 20 GB that take many minutes to compute.
  constexpr std::int64_t k_longest = std::int64_t{1} << 28;
  if (2 * n - 1 > k_longest)
    throw unsupported_error(
        fmt::format("fft: expected a length with two factors that lines hold, or of at most {} points, got {}", (k_longest + 1) / 2, n));
  std::int64_t made = 1;
  while (made < 2 * n - 1) made = core::checked_product(made, 2);
  return made / 4 * 3 >= 2 * n - 1 ? made / 4 * 3 : made;
}

template <class T>
void strike(const transform_args& how, inject::site where, const inject::position& here, core::vector<std::complex<T>>& data) {
  how.injector.strike(where, here, reinterpret_cast<T*>(data.data()), 2 * static_cast<std::int64_t>(data.size()));
}

template <class T>
bool is_finite(const core::vector<std::complex<T>>& z) {
  return std::all_of(z.begin(), z.end(), [](auto v) { return std::isfinite(v.real()) && std::isfinite(v.imag()); });
}

template <class T, class W>
std::complex<W> weighted_sum(const core::vector<std::complex<T>>& z, const std::vector<std::complex<W>>& weights) {
  std::complex<W> total = 0;
  for (std::size_t j = 0; j < z.size(); ++j) total += multiply(std::complex<W>(z[j]), weights[j]);
  return total;
}

// Returns whether `made` holds x_j w_j · factor for all j.
template <class T>
bool repeats(const core::vector<std::complex<T>>& x, const core::vector<std::complex<T>>& w, std::int64_t count, T factor,
             const core::vector<std::complex<T>>& made) {
  const auto equal = [](T a, T b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  bool all = true;
  for (std::int64_t j = 0; j < count; ++j) {
    std::complex<T> z = multiply(x[at(j)], w[at(j)]);
    if (factor != 1) z *= factor;
    all = all && equal(z.real(), made[at(j)].real()) && equal(z.imag(), made[at(j)].imag());
  }
  return all;
}

template <class T>
std::uint64_t hash(const core::vector<std::complex<T>>& z) {
  abft::result_hash made;
  for (const auto& v : z) {
    made.add(v.real());
    made.add(v.imag());
  }
  return made.bits();
}

}  // namespace

template <class T>
convolution<T>::convolution(const geometry& shape, bool protect) : shape_(shape), n_(shape.n[2]), length_(length_of(n_)) {
  inner_ = std::make_unique<volume<T>>(line_of(length_), split_line(length_), protect);
  const auto filter = chirp_filter<W>(n_, length_);
  for (factor_tables& made : factors_) {
    for (std::int64_t j = 0; j < n_; ++j) made.chirp.emplace_back(chirp<W>(j, n_));
    for (const auto& z : filter) made.filter.emplace_back(z / static_cast<W>(length_));
    if (!protect) break;
  }
  if (protect) weights_ = make_axis_weights<T>(n_, draw_weights(form::complex, n_, 2), n_);
}

// Returns the arguments of a long transform.
template <class T>
transform_args convolution<T>::part_of(const transform_args& how, direction way) {
  return {way, 1, 1, false, how.protection, how.threads, how.stream, how.workspace, how.seen, how.injector};
}

template <class T>
void convolution<T>::run(const void* in, void* out, const transform_args& how) const {
  const strike_counts all{shape_.batch * tiles_of_signal(), shape_.batch * waiting_of_signal()};
  memory_.lend([&](workspace& mine) {
    mine.x.resize(at(n_));
    mine.y.resize(at(n_));
    mine.u.resize(at(length_));
    mine.f.resize(at(length_));
    inner_->prepare(mine.inner, part_of(how, direction::forward), 1);
    for (std::int64_t b = 0; b < shape_.batch; ++b)
      run_signal({static_cast<const T*>(in), how, b, all, {(b + 1) * tiles_of_signal() - 1, all.tiles, 0, 1}}, static_cast<T*>(out), mine);
  });
}

template <class T>
void convolution<T>::run_signal(const item& one, T* out, workspace& mine) const {
  const transform_args& how = one.how;
  if (how.protection == protection::off) {
    compute(one, mine);
  } else {
    const auto once = [&](int number) -> std::optional<abft::finding> {
      const encoded input = encode(one, mine.x);
      const computed how_done = compute(one, mine);
      if (how_done == computed::failed) return std::nullopt;
      abft::finding now = verify(one, input, mine.y);
      if (how_done == computed::differs && now.judged && now.word == abft::k_pass) {
        now.word = abft::k_fail;
        now.residual = std::numeric_limits<double>::infinity();
      }
      how.seen.checked(k_vectors);
      if (number > 0 || !now.judged || now.word != abft::k_pass) now.bits = hash(mine.y);
      return now;
    };
    if (run::attempt(how.seen, how.protection, "fft.end_to_end", 0, once) == abft::outcome::uncorrectable) return;
  }
  scatter(mine.y, one.number, how.direction, out);
}

// Loads a signal. An inverse transform is the conjugate of the transform of the conjugate, so it loads conjugates.
template <class T>
void convolution<T>::gather(const item& one, signal& x) const {
  const side& from = shape_.input;
  const bool inverse = one.how.direction == direction::inverse;
  for (std::int64_t j = 0; j < n_; ++j) {
    const bool mirrored = shape_.kind == kind::c2r && 2 * j > n_;
    const std::int64_t i = one.number * from.distance + (mirrored ? n_ - j : j) * from.stride[2];
    std::complex<T> z = from.real ? std::complex<T>(one.in[i], 0) : std::complex<T>(one.in[2 * i], one.in[2 * i + 1]);
    if (shape_.kind == kind::c2r && (j == 0 || 2 * j == n_)) z.imag(0);
    x[at(j)] = mirrored != inverse ? std::conj(z) : z;
  }
}

template <class T>
void convolution<T>::scatter(const signal& y, std::int64_t number, direction way, T* out) const {
  const side& to = shape_.output;
  for (std::int64_t k = 0; k < to.length[2]; ++k) {
    const std::int64_t i = number * to.distance + k * to.stride[2];
    const std::complex<T> z = way == direction::inverse ? std::conj(y[at(k)]) : y[at(k)];
    if (to.real) {
      out[i] = z.real();
    } else {
      out[2 * i] = z.real();
      out[2 * i + 1] = z.imag();
    }
  }
}

// Uses x as scratch: compute() reads the signal again, so that the check does not depend on the copy that compute() works on.
template <class T>
typename convolution<T>::encoded convolution<T>::encode(const item& one, signal& x) const {
  gather(one, x);
  encoded made;
  made.finite = is_finite(x);
  W squares = 0;
  for (const auto& z : x) squares += W(z.real()) * W(z.real()) + W(z.imag()) * W(z.imag());
  made.norm = static_cast<double>(std::sqrt(squares));
  for (int v = 0; v < k_vectors; ++v) made.sums.set(v, weighted_sum(x, weights_.b[v]));
  one.how.injector.strike(site::checksum, one.here, made.sums.high, 2 * k_vectors);
  return made;
}

// Computes y = scale · DFT(x).
template <class T>
typename convolution<T>::computed convolution<T>::compute(const item& one, workspace& mine) const {
  const transform_args& how = one.how;
  gather(one, mine.x);
  strike(how, site::input, one.here, mine.x);
  signal struck;
  const signal* factors = &factors_[0].chirp;
  if constexpr (inject::active_injector::enabled) {
    struck = factors_[0].chirp;
    strike(how, site::twiddle, one.here, struck);
    factors = &struck;
  }
  const bool twice = how.protection != protection::off;
  bool same = true;
  const auto multiply_rows = [](const signal& x, const signal& w, signal& to, std::int64_t count) {
    for (std::int64_t j = 0; j < count; ++j) to[at(j)] = multiply(x[at(j)], w[at(j)]);
  };
  multiply_rows(mine.x, *factors, mine.u, n_);
  same = !twice || repeats(mine.x, factors_[1].chirp, n_, T(1), mine.u);
  std::fill(mine.u.begin() + static_cast<std::ptrdiff_t>(n_), mine.u.end(), std::complex<T>(0));
  bool done = transform_long(one, direction::forward, mine, 0);
  multiply_rows(mine.f, factors_[0].filter, mine.u, length_);
  strike(how, site::stage, one.here, mine.u);
  same = (!twice || repeats(mine.f, factors_[1].filter, length_, T(1), mine.u)) && same;
  strike(how, site::intermediate, {(one.number + 1) * waiting_of_signal() - 1, one.all.waiting, 0, 1}, mine.u);
  done = transform_long(one, direction::inverse, mine, 1) && done;
  multiply_rows(mine.f, *factors, mine.y, n_);
  if (how.scale != 1) {
    for (auto& z : mine.y) z *= static_cast<T>(how.scale);
  }
  if (done) strike(how, site::output, one.here, mine.y);
  same = (!twice || repeats(mine.f, factors_[1].chirp, n_, static_cast<T>(how.check_scale), mine.y)) && same;
  return !done ? computed::failed : same ? computed::done : computed::differs;
}

// Transforms mine.u to mine.f. `which`: 0 for the first, 1 for the second long transform of the signal.
template <class T>
bool convolution<T>::transform_long(const item& one, direction way, workspace& mine, int which) const {
  const numbering where{one.all, one.number * tiles_of_signal() + which * inner_->tiles_of_signal(),
                        one.number * waiting_of_signal() + which * inner_->waiting_of_signal()};
  return inner_
      ->run_part({reinterpret_cast<const T*>(mine.u.data()), reinterpret_cast<T*>(mine.f.data()), where, one.number}, part_of(one.how, way),
                 mine.inner)
      .sound;
}

template <class T>
abft::finding convolution<T>::verify(const item& one, const encoded& input, const signal& y) const {
  const transform_args& how = one.how;
  abft::finding now;
  now.index = one.number;
  if (!is_finite(y) && (!input.finite || input.norm > abft::overflow_norm<T>(16 * static_cast<double>(length_)))) {
    now.judged = false;
    now.residual = std::numeric_limits<double>::quiet_NaN();
    return now;
  }
  const double points = static_cast<double>(n_);
  const double scale = static_cast<double>(static_cast<T>(how.check_scale));
  abft::guarded_threshold tau(thresholds::residual<T>(points, input.norm, k_kappa * k_convolution_sensitivity) * scale +
                              thresholds::output_underflow<T>(points));
  how.injector.strike(site::threshold, one.here, &tau.value, 2);
  now.threshold = tau.value;
  std::uint32_t words[k_vectors];
  bool small = true;
  for (int v = 0; v < k_vectors; ++v) {
    const auto rho = weighted_sum(y, weights_.a[v]) - input.sums.template get<W>(v) * static_cast<W>(scale);
    const double size = std::hypot(static_cast<double>(rho.real()), static_cast<double>(rho.imag()));
    words[v] = abft::verify(size, tau);
    if (!(size <= now.residual)) now.residual = size;
    small = small && size <= k_repeat_share * tau.twin;
  }
  how.injector.strike(site::comparison, one.here, words, k_vectors);
  if (std::any_of(words, words + k_vectors, [](std::uint32_t word) { return word != abft::k_pass; })) {
    now.word = abft::k_fail;
  } else if (!small) {
    now.judged = false;
    now.threshold *= k_repeat_share;
  }
  return now;
}

template class convolution<float>;
template class convolution<double>;

}  // namespace ballast::fft::cpu
