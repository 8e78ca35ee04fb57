// The steps of the convolution of one signal: gather, encode, convolve, verify, scatter.
#include "fft/cpu/convolution.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include <ballast/error.hpp>

#include "abft/attempt.hpp"
#include "core/at.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "fft/cpu/along.hpp"
#include "fft/cpu/kernels.hpp"
#include "fft/sites.hpp"
#include "fft/thresholds.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

namespace ballast::fft::cpu {

using core::at;

namespace {

// Returns a length that holds a convolution of n points: the smallest 2^k or 3·2^k, or a multiple of 256 without prime factors above 7 if
// that is a tenth shorter. A multiple of 256 has two factors that are multiples of a vector.
std::int64_t length_of(std::int64_t n) {
  // Longer convolutions, of n above 2^27, would need tables of more than 20 GB that take many minutes to compute.
  constexpr std::int64_t k_longest = std::int64_t{1} << 28, k_unit = 256;
  const std::int64_t least = 2 * n - 1;
  if (least > k_longest)
    throw unsupported_error(
        fmt::format("fft: expected a length with two factors that lines hold, or of at most {} points, got {}", (k_longest + 1) / 2, n));
  std::int64_t made = 1;
  while (made < least) made = core::checked_product(made, 2);
  if (made / 4 * 3 >= least) made = made / 4 * 3;
  const auto is_smooth = [](std::int64_t m) {
    for (const std::int64_t p : {2, 3, 5, 7}) {
      while (m % p == 0) m /= p;
    }
    return m == 1;
  };
  std::int64_t units = (least + k_unit - 1) / k_unit;
  while (!is_smooth(units)) ++units;
  return 10 * units * k_unit <= 9 * made ? units * k_unit : made;
}

template <class T>
void strike(const transform_args& how, inject::site where, const inject::position& here, core::vector<std::complex<T>>& data) {
  how.injector.strike(where, here, reinterpret_cast<T*>(data.data()), 2 * static_cast<std::int64_t>(data.size()));
}

template <class T>
bool is_finite(const core::vector<std::complex<T>>& z) {
  return std::all_of(z.begin(), z.end(), [](auto v) { return std::isfinite(v.real()) && std::isfinite(v.imag()); });
}

// Returns a signal for kernel_table::encode_signals and ::sum_signals. They sum in working precision in short parts, as for tiles, which is
// in the threshold (thresholds::residual).
template <class T>
signals_of<T> one_signal(const core::vector<std::complex<T>>& z) {
  return {reinterpret_cast<const T*>(z.data()), 0, 1, static_cast<std::int64_t>(z.size())};
}
checksum sums_of_lane(const lane_sums& sums) {
  checksum made;
  for (int i = 0; i < 2 * k_vectors; ++i) {
    made.high[i] = sums.high[i][0];
    made.low[i] = sums.low[i][0];
  }
  return made;
}

// For numbers so large or small that sums in working precision would leave its range: Σ z_j w_j for both weight vectors and Σ |z_j|². Four
// partial sums each, so that an addition does not wait for the one before it.
template <class W>
struct signal_sums {
  std::complex<W> weighted[k_vectors];
  W squares = 0;
};

template <class T, class W>
signal_sums<W> sum_signal(const core::vector<std::complex<T>>& z, const std::vector<std::complex<W>> (&weights)[k_vectors]) {
  constexpr std::size_t k_parts = 4;
  W re[k_vectors][k_parts] = {}, im[k_vectors][k_parts] = {}, squares[k_parts] = {};
  const auto add = [&](std::size_t j, std::size_t part) {
    const W x = z[j].real(), y = z[j].imag();
    squares[part] += x * x + y * y;
    for (std::size_t v = 0; v < k_vectors; ++v) {
      const std::complex<W>& w = weights[v][j];
      re[v][part] += x * w.real() - y * w.imag();
      im[v][part] += x * w.imag() + y * w.real();
    }
  };
  std::size_t j = 0;
  for (; j + k_parts <= z.size(); j += k_parts) {
    for (std::size_t part = 0; part < k_parts; ++part) add(j + part, part);
  }
  for (; j < z.size(); ++j) add(j, 0);
  signal_sums<W> made;
  const auto total = [](const W(&parts)[k_parts]) { return (parts[0] + parts[1]) + (parts[2] + parts[3]); };
  for (std::size_t v = 0; v < k_vectors; ++v) made.weighted[v] = {total(re[v]), total(im[v])};
  made.squares = total(squares);
  return made;
}

template <class T>
product_call<T> product_of(const core::vector<std::complex<T>>& z, const core::vector<std::complex<T>>& factors, std::int64_t count,
                           T scale = 1) {
  return {reinterpret_cast<const T*>(z.data()), reinterpret_cast<const T*>(factors.data()), count, scale};
}

// Copies complex numbers, or their conjugates.
template <class T>
void copy_numbers(const T* from, std::int64_t count, T* to, bool conjugate) {
  if (!conjugate) {
    std::memcpy(to, from, static_cast<std::size_t>(2 * count) * sizeof(T));
    return;
  }
  for (std::int64_t i = 0; i < 2 * count; i += 2) {
    to[i] = from[i];
    to[i + 1] = -from[i + 1];
  }
}

// Calls body(i, z) for each number z that signal `number` stores at element i of the output: y, or its conjugates for an inverse transform.
template <class T, class Body>
void each_result(const side& to, const core::vector<std::complex<T>>& y, std::int64_t number, direction way, const Body& body) {
  for (std::int64_t k = 0; k < to.length[2]; ++k) {
    const std::complex<T> z = y[static_cast<std::size_t>(k)];
    body(number * to.distance + k * to.stride[2], way == direction::inverse ? std::conj(z) : z);
  }
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
  if (!protect) return;
  weights_ = make_axis_weights<T>(n_, draw_weights(form::complex, n_, 2), n_);
  if (kernels<T>().lanes == 1) return;
  std::vector<T> rows;
  const auto push = [&](const std::complex<W>& w) {
    rows.push_back(static_cast<T>(w.real()));
    rows.push_back(static_cast<T>(w.imag()));
  };
  for (std::int64_t j = 0; j < n_; ++j) {
    for (const auto& each : weights_.b) push(each[at(j)]);
  }
  input_weights_ = weights_along(rows, k_vectors, 2 * n_);
  rows.clear();
  for (const auto& each : weights_.a[0]) push(each);
  output_weights_ = weights_along(rows, 1, 2 * second_half(n_));
}

// Returns the arguments of a long transform.
template <class T>
transform_args convolution<T>::part_of(const transform_args& how, direction way, int threads) {
  return {way, 1, 1, false, how.protection, threads, how.stream, how.workspace, how.seen, how.injector};
}

// Returns whether each signal is transformed by one thread: the steps between the long transforms are those of one. Each takes memory for
// its signals, so long ones are shared.
template <class T>
bool convolution<T>::takes_whole_signals(int threads) const {
  constexpr std::int64_t k_most_bytes = std::int64_t{16} << 20, k_most_of_all = std::int64_t{256} << 20;
  const std::int64_t bytes = length_ * static_cast<std::int64_t>(sizeof(std::complex<T>));
  return shape_.batch >= 2 * threads && bytes <= k_most_bytes && bytes * threads <= k_most_of_all;
}

template <class T>
void convolution<T>::run(const void* in, void* out, const transform_args& how) const {
  const strike_counts all{shape_.batch * tiles_of_signal(), shape_.batch * waiting_of_signal()};
  memory_.lend([&](workspace& memory) {
    const bool whole = takes_whole_signals(how.threads);
    const int signals = whole ? how.threads : 1;
    while (memory.places.size() < at(signals)) {
      memory.places.push_back(std::make_unique<place>());
      place& made = *memory.places.back();
      for (signal* each : {&made.x, &made.y}) each->resize(at(n_));
      for (signal* each : {&made.u, &made.f}) each->resize(at(length_));
    }
    inner_->prepare(memory.inner, part_of(how, direction::forward, how.threads), signals);
    const auto one = [&](std::int64_t b, int threads, int slot) {
      const inject::position here{(b + 1) * tiles_of_signal() - 1, all.tiles, 0, 1};
      run_signal({static_cast<const T*>(in), how, b, threads, slot, all, here}, static_cast<T*>(out), memory);
    };
    if (whole) {
      core::parallel_for(how.threads, shape_.batch, [&](std::int64_t b, int slot) { one(b, 1, slot); });
    } else {
      for (std::int64_t b = 0; b < shape_.batch; ++b) one(b, how.threads, -1);
    }
  });
}

template <class T>
void convolution<T>::run_signal(const item& one, T* out, workspace& memory) const {
  const transform_args& how = one.how;
  const int slot = std::max(one.slot, 0);
  place& mine = *memory.places[at(slot)];
  if (how.protection == protection::off) {
    compute(one, memory);
    scatter(mine.y, one.number, how.direction, out);
  } else {
    const auto once = [&](int number) -> std::optional<abft::finding> {
      const encoded input = encode(one, mine.x);
      const computed how_done = compute(one, memory);
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
    if (run::attempt(how.seen, how.protection, "fft.end_to_end", slot, once) == abft::outcome::uncorrectable) return;
    // The stored numbers must be the verified ones, or they are stored again.
    const auto store = [&](int) -> std::optional<abft::finding> {
      scatter(mine.y, one.number, how.direction, out);
      const bool same = is_stored(mine.y, one.number, how.direction, out);
      return abft::finding{.word = same ? abft::k_pass : abft::k_fail, .residual = same ? 0.0 : 1.0, .index = one.number};
    };
    (void)run::attempt(how.seen, how.protection, "fft.output", slot, store);
  }
}

// Loads a signal. An inverse transform is the conjugate of the transform of the conjugate, so it loads conjugates.
template <class T>
void convolution<T>::gather(const item& one, signal& x) const {
  const side& from = shape_.input;
  const bool inverse = one.how.direction == direction::inverse;
  if (shape_.kind == kind::c2c && from.stride[2] == 1) {
    copy_numbers(one.in + 2 * one.number * from.distance, n_, reinterpret_cast<T*>(x.data()), inverse);
    return;
  }
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
  if (!to.real && to.stride[2] == 1) {
    copy_numbers(reinterpret_cast<const T*>(y.data()), to.length[2], out + 2 * number * to.distance, way == direction::inverse);
    return;
  }
  each_result(to, y, number, way, [&](std::int64_t i, const std::complex<T>& z) {
    if (to.real) {
      out[i] = z.real();
    } else {
      out[2 * i] = z.real();
      out[2 * i + 1] = z.imag();
    }
  });
}

// Returns whether the output has the bits of the results.
template <class T>
bool convolution<T>::is_stored(const signal& y, std::int64_t number, direction way, const T* out) const {
  using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // no load is replaced by what was stored
  const bool real = shape_.output.real;
  word changed = 0;
  const auto compare = [&](T stored, T result) { changed |= std::bit_cast<word>(stored) ^ std::bit_cast<word>(result); };
  each_result(shape_.output, y, number, way, [&](std::int64_t i, const std::complex<T>& z) {
    compare(out[real ? i : 2 * i], z.real());
    if (!real) compare(out[2 * i + 1], z.imag());
  });
  return changed == 0;
}

// Uses x as scratch: compute() reads the signal again, so that the check does not depend on the copy that compute() works on.
template <class T>
typename convolution<T>::encoded convolution<T>::encode(const item& one, signal& x) const {
  gather(one, x);
  encoded made;
  if (input_weights_.size() > 0) {
    lane_sums sums = {};  // f32 has no low parts
    kernels<T>().encode_signals(one_signal(x), {input_weights_.data(), true}, sums, {});
    made.moderate = sums.squares[0] > abft::k_squares<T>.low && sums.squares[0] < abft::k_squares<T>.high;
    made.norm = std::sqrt(sums.squares[0]);
    made.sums = sums_of_lane(sums);
  }
  if (!made.moderate) {
    made.finite = is_finite(x);
    const signal_sums<W> sums = sum_signal(x, weights_.b);
    made.norm = static_cast<double>(std::sqrt(sums.squares));
    for (int v = 0; v < k_vectors; ++v) made.sums.set(v, sums.weighted[v]);
  }
  one.how.injector.strike(site::checksum, one.here, made.sums.high, 2 * k_vectors);
  return made;
}

// Computes y = scale · DFT(x).
template <class T>
typename convolution<T>::computed convolution<T>::compute(const item& one, workspace& memory) const {
  const transform_args& how = one.how;
  place& mine = *memory.places[at(std::max(one.slot, 0))];
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
  const kernel_table<T>& run = kernels<T>();
  const auto scalars = [](signal& z) { return reinterpret_cast<T*>(z.data()); };
  const auto repeats = [&](const signal& z, const signal& w, std::int64_t count, T scale, signal& made) {
    return !twice || run.same_products(product_of(z, w, count, scale), scalars(made));
  };
  run.make_products(product_of(mine.x, *factors, n_), scalars(mine.u));
  bool same = repeats(mine.x, factors_[1].chirp, n_, T(1), mine.u);
  std::fill(mine.u.begin() + static_cast<std::ptrdiff_t>(n_), mine.u.end(), std::complex<T>(0));
  bool done = transform_long(one, direction::forward, memory, 0);
  run.make_products(product_of(mine.f, factors_[0].filter, length_), scalars(mine.u));
  strike(how, site::stage, one.here, mine.u);
  same = repeats(mine.f, factors_[1].filter, length_, T(1), mine.u) && same;
  strike(how, site::intermediate, {(one.number + 1) * waiting_of_signal() - 1, one.all.waiting, 0, 1}, mine.u);
  done = transform_long(one, direction::inverse, memory, 1) && done;
  run.make_products(product_of(mine.f, *factors, n_, static_cast<T>(how.scale)), scalars(mine.y));
  if (done) strike(how, site::output, one.here, mine.y);
  same = repeats(mine.f, factors_[1].chirp, n_, static_cast<T>(how.check_scale), mine.y) && same;
  return !done ? computed::failed : same ? computed::done : computed::differs;
}

// Transforms u to f. `which`: 0 for the first, 1 for the second long transform of the signal.
template <class T>
bool convolution<T>::transform_long(const item& one, direction way, workspace& memory, int which) const {
  const numbering where{one.all, one.number * tiles_of_signal() + which * inner_->tiles_of_signal(),
                        one.number * waiting_of_signal() + which * inner_->waiting_of_signal()};
  place& mine = *memory.places[at(std::max(one.slot, 0))];
  return inner_
      ->run_part({reinterpret_cast<const T*>(mine.u.data()), reinterpret_cast<T*>(mine.f.data()), where, one.number, one.slot},
                 part_of(one.how, way, one.threads), memory.inner)
      .sound;
}

template <class T>
abft::finding convolution<T>::verify(const item& one, const encoded& input, const signal& y) const {
  const transform_args& how = one.how;
  abft::finding now;
  now.index = one.number;
  if ((!input.finite || input.norm > abft::overflow_norm<T>(16 * static_cast<double>(length_))) && !is_finite(y)) {
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
  checksum sums;
  if (input.moderate) {
    lane_sums lane = {};
    kernels<T>().sum_signals(one_signal(y), {output_weights_.data(), true}, lane);
    sums = sums_of_lane(lane);
  } else {
    const signal_sums<W> wide = sum_signal(y, weights_.a);
    for (int v = 0; v < k_vectors; ++v) sums.set(v, wide.weighted[v]);
  }
  for (int v = 0; v < k_vectors; ++v) {
    const auto rho = sums.template get<W>(v) - input.sums.template get<W>(v) * static_cast<W>(scale);
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
