// Convolution of blocks: they are padded, transformed, multiplied, transformed back, verified from end to end, and added to the result.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <utility>
#include <vector>

#include "abft/attempt.hpp"
#include "abft/seal.hpp"
#include "abft/threshold.hpp"
#include "abft/verify.hpp"
#include "core/at.hpp"
#include "core/counter_rng.hpp"
#include "core/memory.hpp"
#include "fft/api/convolution.hpp"
#include "fft/sites.hpp"
#include "fft/tables/checks.hpp"
#include "fft/tables/circle.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "fft/thresholds.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"
#if defined(BALLAST_HAS_CPU)
#include "core/parallel.hpp"
#endif

namespace ballast::fft {

using core::at;

template <class W>
circle_powers<W> make_circle_powers(const std::vector<std::int64_t>& lengths) {
  circle_powers<W> made;
  for (std::size_t v = 0; v < made.size(); ++v) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      std::vector<std::complex<W>>& powers = made[v].emplace_back();
      for (std::int64_t k = 0; k < lengths[i]; ++k) powers.push_back(circle_power<W>(i, v, k));
    }
  }
  return made;
}

namespace {

// One call with data of type T, or of complex numbers of it.
template <class T>
class execution_of {
 public:
  using W = wide<T>;
  using number = std::complex<W>;

  explicit execution_of(const convolution_call<T>& call)
      : of_(call.of),
        parts_(call.of.problem.complex ? 2 : 1),
        signal_(call.of.swapped ? call.second : call.first),
        kernel_(call.of.swapped ? call.first : call.second),
        out_(call.out),
        how_(call.how),
        seen_(call.seen),
        injector_(call.injector),
        protect_(call.how.protection != protection::off),
        powers_(powers_of(call.of)),
        spectrum_(of_.points() / of_.padded.back() * (parts_ == 2 ? of_.padded.back() : of_.padded.back() / 2 + 1)) {}

  void run() {
    const std::int64_t size = of_.points() * parts_;
    x_.resize(at(of_.group * size));
    f_.resize(at(of_.group * spectrum_ * 2));
    p_.resize(f_.size());
    y_.resize(at((of_.group + 1) * size));
    k_.resize(at(spectrum_ * 2));
    prepare_kernel();
    for (std::int64_t first = 0; first < of_.blocks && !seen_.uncorrectable(); first += of_.group) {
      if (!protect_) {
        (void)compute(first, 0);
        store(first);
      } else {
        if (run::attempt(seen_, how_.protection, "fft.convolution", 0, [&](int number) { return compute(first, number); }) ==
            abft::outcome::uncorrectable)
          return;
        const auto stored = [&](int number) {
          if (number > 0 && !waits_as_verified(first)) {
            if (const abft::finding again = compute(first, number); again.word != abft::k_pass) return again;
          }
          store(first);
          return abft::finding{.word = is_stored(first) ? abft::k_pass : abft::k_fail, .residual = 1, .index = first};
        };
        if (run::attempt(seen_, how_.protection, "fft.output", 0, stored) == abft::outcome::uncorrectable) return;
      }
      if (first + of_.group < of_.blocks) keep_last(first);
    }
  }

 private:
  static const circle_powers<W>& powers_of(const convolution::implementation& of) {
    if constexpr (sizeof(T) == 4)
      return of.powers.for_f32;
    else
      return of.powers.for_f64;
  }

  bool reversed(bool kernel) const { return of_.problem.correlate && kernel != of_.swapped; }
  std::int64_t used(std::int64_t first) const { return std::min(of_.group, of_.blocks - first); }
  // The lengths of block `number` of the signal, or of the kernel (−1).
  std::vector<std::int64_t> lengths_of(std::int64_t number) const {
    if (number < 0) return of_.kernel;
    if (of_.blocks == 1) return of_.signal;
    return {std::min(of_.step, of_.signal[0] - number * of_.step)};
  }
  std::vector<std::int64_t> result_lengths(std::int64_t number) const {
    std::vector<std::int64_t> made = lengths_of(number);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] += of_.kernel[i] - 1;
    return made;
  }

  // Calls visit(place of the first element in an array of these lengths, place in an array of the padded lengths, indices) for each row.
  template <class Visit>
  void for_each_row(const std::vector<std::int64_t>& lengths, const Visit& visit) const {
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < lengths.size(); ++i) rows *= lengths[i];
    core::vector<std::int64_t> index(lengths.size(), 0);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t rest = row, place = 0, stride = of_.padded.back();
      for (std::size_t i = lengths.size() - 1; i-- > 0; rest /= lengths[i], stride *= of_.padded[i]) {
        index[i] = rest % lengths[i];
        place += index[i] * stride;
      }
      visit(row * lengths.back(), place, index);
    }
  }

  // Part p of element i of an operand, in the order in which it is convolved.
  T element(bool kernel, std::int64_t number, std::int64_t elements, std::int64_t i, int p) const {
    const T* const from = kernel ? kernel_ : signal_;
    if (!reversed(kernel)) return from[((kernel ? 0 : number * of_.step) + i) * parts_ + p];
    // A divided operand is reversed as a whole.
    const std::int64_t last = kernel || of_.blocks == 1 ? elements - 1 : of_.signal[0] - 1 - number * of_.step;
    const T value = from[(last - i) * parts_ + p];
    return p == 1 ? -value : value;
  }

  void pad(bool kernel, std::int64_t number, T* to) const {
    const std::vector<std::int64_t> lengths = lengths_of(kernel ? -1 : number);
    const std::int64_t elements = points_of(lengths);
    std::fill(to, to + of_.points() * parts_, T(0));
    for_each_row(lengths, [&](std::int64_t from, std::int64_t place, const auto&) {
      for (std::int64_t j = 0; j < lengths.back(); ++j) {
        for (int p = 0; p < parts_; ++p) to[(place + j) * parts_ + p] = element(kernel, number, elements, from + j, p);
      }
    });
  }

  // The word of scalar `at` of a padded block, as it joins a parity: turned by its place. So equal changes of neighbours, by one mask over
  // a vector register, do not cancel, and zeros have no bits.
  static std::uint64_t placed_word(T x, std::int64_t at) {
    return std::rotl(static_cast<std::uint64_t>(abft::word_of(x)), static_cast<int>(at % 64));
  }

  // Σ x z^index at both points, ‖x‖², and the exclusive or of the words.
  struct sums {
    number at[k_vectors] = {};
    W square = 0;
    std::uint64_t parity = 0;
  };
  // get(row place in the array, in the padded array, j, p): part p of element j of a row.
  template <class Get>
  sums sum(const std::vector<std::int64_t>& lengths, const Get& get) const {
    sums made;
    for_each_row(lengths, [&](std::int64_t from, std::int64_t place, const auto& index) {
      number row[k_vectors] = {};
      for (std::int64_t j = 0; j < lengths.back(); ++j) {
        const T parts[2] = {get(from, place, j, 0), parts_ == 2 ? get(from, place, j, 1) : T(0)};
        made.parity ^= placed_word(parts[0], (place + j) * parts_) ^ placed_word(parts[1], (place + j) * parts_ + 1);
        const W re = parts[0], im = parts[1];
        made.square += re * re + im * im;
        for (int v = 0; v < k_vectors; ++v) {
          const number w = powers_[at(v)].back()[at(j)];
          row[v] += number(w.real() * re - w.imag() * im, w.real() * im + w.imag() * re);
        }
      }
      for (int v = 0; v < k_vectors; ++v) {
        for (std::size_t i = 0; i + 1 < lengths.size(); ++i) row[v] = multiply(row[v], powers_[at(v)][i][at(index[i])]);
        made.at[v] += row[v];
      }
    });
    return made;
  }
  sums sum_of_operand(bool kernel, std::int64_t number) const {
    const std::vector<std::int64_t> lengths = lengths_of(kernel ? -1 : number);
    const std::int64_t elements = points_of(lengths);
    return sum(lengths,
               [&](std::int64_t from, std::int64_t, std::int64_t j, int p) { return element(kernel, number, elements, from + j, p); });
  }

  transform_args args(direction way, double scale) {
    return {way,
            scale,
            way == direction::forward ? 1 : 1 / static_cast<double>(of_.points()),
            false,
            how_.protection,
            threads(),
            how_.stream,
            {},
            seen_,
            injector_};
  }
  int threads() const {
#if defined(BALLAST_HAS_CPU)
    return core::thread_count(how_.threads);
#else
    return 1;
#endif
  }

  // The exclusive or of the words of a padded block: that of its elements, since zeros have no bits.
  std::uint64_t parity_of(const T* block) const {
    std::uint64_t made = 0;
    for (std::int64_t i = 0; i < of_.points() * parts_; ++i) made ^= placed_word(block[i], i);
    return made;
  }

  void prepare_kernel() {
    pad(true, 0, x_.data());
    injector_.strike(site::input, {}, x_.data(), of_.points() * parts_);
    if (protect_) {
      of_kernel_ = sum_of_operand(true, 0);
      spectrum_of_kernel_.padded = parity_of(x_.data()) == of_kernel_.parity;
      if (!spectrum_of_kernel_.padded) return;
    }
    of_.of_kernel->run(x_.data(), k_.data(), args(direction::forward, 1));
    if (protect_) spectrum_of_kernel_.seal = abft::seal_of(k_.data(), std::ssize(k_));
  }

  static void multiply_spectra(const T* a, const T* b, std::int64_t count, T* to) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
      to[2 * i] = ar * br - ai * bi;
      to[2 * i + 1] = ar * bi + ai * br;
    }
  }
  // Returns whether p has the products, computed again. NaNs are alike.
  static bool has_products(const T* a, const T* b, std::int64_t count, const T* p) {
    bool same = true;
    const auto equal = [](T x, T y) { return abft::word_of(x) == abft::word_of(y) || (x != x && y != y); };
    for (std::int64_t i = 0; i < count; ++i) {
      const T ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
      same = equal(p[2 * i], ar * br - ai * bi) && equal(p[2 * i + 1], ar * bi + ai * br) && same;
    }
    return same;
  }

  static abft::finding failed(std::int64_t block) { return {.word = abft::k_fail, .residual = 1, .index = block}; }

  // The convolutions of blocks first, first + 1, … into y_, after a place for the previous block.
  abft::finding compute(std::int64_t first, int number) {
    const std::int64_t count = used(first), size = of_.points() * parts_;
    const inject::position here{first / of_.group, (of_.blocks + of_.group - 1) / of_.group, 0, 1};
    if (number > 0) prepare_kernel();
    if (!spectrum_of_kernel_.padded) return failed(first);
    for (std::int64_t b = 0; b < of_.group; ++b) {
      if (b < count)
        pad(false, first + b, x_.data() + b * size);
      else
        std::fill(x_.begin() + b * size, x_.begin() + (b + 1) * size, T(0));
    }
    injector_.strike(site::input, here, x_.data(), count * size);
    bool same = true;
    core::vector<sums> in;
    for (std::int64_t b = 0; protect_ && b < count; ++b) {
      in.push_back(sum_of_operand(false, first + b));
      same = parity_of(x_.data() + b * size) == in.back().parity && same;
    }
    // Nothing is computed from wrong numbers, which may have any size.
    if (!same) return failed(first);
    of_.forward->run(x_.data(), f_.data(), args(direction::forward, 1));
    const std::uint64_t seal = protect_ ? abft::seal_of(f_.data(), std::ssize(f_)) : 0;
    for (std::int64_t b = 0; b < of_.group; ++b)
      multiply_spectra(f_.data() + 2 * b * spectrum_, k_.data(), spectrum_, p_.data() + 2 * b * spectrum_);
    injector_.strike(site::intermediate, here, p_.data(), 2 * count * spectrum_);
    const auto multiplied = [&] {
      bool right = true;
      for (std::int64_t b = 0; b < count; ++b)
        right = has_products(f_.data() + 2 * b * spectrum_, k_.data(), spectrum_, p_.data() + 2 * b * spectrum_) && right;
      return right && abft::seal_of(f_.data(), std::ssize(f_)) == seal &&
             abft::seal_of(k_.data(), std::ssize(k_)) == spectrum_of_kernel_.seal;
    };
    if (protect_ && !multiplied()) return failed(first);
    of_.backward->run(p_.data(), y_.data() + size, args(direction::inverse, of_.scale));
    if (protect_ && !multiplied()) return failed(first);  // the products waited for the transform
    injector_.strike(site::output, here, y_.data() + size, count * size);
    return protect_ ? verify(in, first, number, here) : abft::finding{};
  }

  abft::finding verify(const core::vector<sums>& operands, std::int64_t first, int number, const inject::position& here) {
    const std::int64_t count = std::ssize(operands);
    const std::int64_t size = of_.points() * parts_;
    const auto points = static_cast<double>(of_.points());
    // Rounding gives each transform an error of u √log₂N times the norm of its result, and the sums project it: one at random on the unit
    // circle by 1, the worst, with all of the error at z, by √N.
    const double relative = k_kappa * abft::unit_roundoff<T> * std::sqrt(std::log2(points) + 7);
    const double smallest = thresholds::output_underflow<T>(points) * 4;
    const double kernel = std::sqrt(static_cast<double>(of_kernel_.square));
    abft::finding now;
    bool repeat = false;
    abft::result_hash bits;
    parities_.verified.resize(at(count));
    for (std::int64_t b = 0; b < count; ++b) {
      const T* const y = y_.data() + (b + 1) * size;
      const sums& in = operands[at(b)];
      checksum encoded;
      for (int v = 0; v < k_vectors; ++v) encoded.set(v, in.at[v]);
      injector_.strike(site::checksum, here, encoded.high, 2 * k_vectors);
      const sums out = sum(result_lengths(first + b),
                           [&](std::int64_t, std::int64_t place, std::int64_t j, int p) { return y[(place + j) * parts_ + p]; });
      parities_.verified[at(b)] = out.parity;
      const double x = std::sqrt(static_cast<double>(in.square)), size_of_y = std::sqrt(static_cast<double>(out.square));
      const bool finite = std::isfinite(x * kernel) && x * kernel < abft::overflow_norm<T>(16 * points);
      double tau = relative * (2 * x * kernel + size_of_y) + smallest;
      const double twin = tau;
      injector_.strike(site::threshold, here, &tau, 1);
      for (int v = 0; v < k_vectors; ++v) {
        const double residual = static_cast<double>(std::abs(out.at[v] - multiply(encoded.get<W>(v), of_kernel_.at[v])));
        const double worst = std::sqrt(points);
        abft::guarded_threshold limit(tau * worst);
        limit.twin = twin * worst;
        std::uint32_t word = abft::verify(residual, limit);
        injector_.strike(site::comparison, here, &word, 1);
        const bool fails = finite && word != abft::k_pass;
        if (fails ? now.word == abft::k_pass : !repeat && now.word == abft::k_pass && (!finite || residual > twin)) {
          now.index = first + b;
          now.residual = residual;
          now.threshold = fails ? limit.value : tau;
          if (fails)
            now.word = abft::k_fail;
          else
            repeat = true;
        }
      }
    }
    seen_.checked(static_cast<std::uint64_t>(k_vectors * count));
    now.judged = now.word != abft::k_pass || !repeat;
    if (number > 0 || !now.judged || now.word != abft::k_pass) {
      for (std::int64_t i = size; i < (count + 1) * size; ++i) bits.add(y_[at(i)]);
      now.bits = bits.bits();
    }
    return now;
  }

  // Calls visit(scalar of the result, its value) for the results that these blocks complete.
  template <class Visit>
  void for_each_result(std::int64_t first, const Visit& visit) const {
    const std::int64_t size = of_.points() * parts_;
    if (of_.blocks == 1) {
      const T* const y = y_.data() + size;
      std::int64_t to = 0;
      for_each_row(of_.out_shape, [&](std::int64_t, std::int64_t place, const auto&) {
        std::int64_t shift = 0, stride = 1;
        for (std::size_t i = of_.padded.size(); i-- > 0; stride *= of_.padded[i]) shift += of_.out_first[i] * stride;
        for (std::int64_t i = 0; i < of_.out_shape.back() * parts_; ++i) visit(to++, y[(place + shift) * parts_ + i]);
      });
      return;
    }
    const std::int64_t overlap = of_.kernel[0] - 1, count = used(first);
    for (std::int64_t b = 0; b < count; ++b) {
      const std::int64_t block = first + b;
      const T* const y = y_.data() + (b + 1) * size;
      const T* const before = y - size;
      const std::int64_t begin = block * of_.step;
      const std::int64_t end = block + 1 == of_.blocks ? begin + result_lengths(block)[0] : begin + of_.step;
      for (std::int64_t t = std::max(begin, of_.out_first[0]); t < std::min(end, of_.out_first[0] + of_.out_shape[0]); ++t) {
        for (int p = 0; p < parts_; ++p) {
          T value = y[(t - begin) * parts_ + p];
          if (block > 0 && t - begin < overlap) value += before[(t - begin + of_.step) * parts_ + p];
          visit((t - of_.out_first[0]) * parts_ + p, value);
        }
      }
    }
  }
  void store(std::int64_t first) {
    restore_last(first);
    for_each_result(first, [&](std::int64_t to, T value) { out_[to] = value; });
  }
  // The exclusive or of the words of the convolution of block `number`, as they wait in a padded block.
  std::uint64_t parity_of_result(std::int64_t number, const T* y) const {
    std::uint64_t made = 0;
    const std::vector<std::int64_t> lengths = result_lengths(number);
    for_each_row(lengths, [&](std::int64_t, std::int64_t place, const auto&) {
      for (std::int64_t i = 0; i < lengths.back() * parts_; ++i) made ^= placed_word(y[place * parts_ + i], place * parts_ + i);
    });
    return made;
  }
  // Returns whether the blocks are as the sums of verify() read them.
  bool waits_as_verified(std::int64_t first) {
    const std::int64_t size = of_.points() * parts_;
    parities_.again.resize(parities_.verified.size());
    for (std::int64_t b = 0; b < std::ssize(parities_.again); ++b)
      parities_.again[at(b)] = parity_of_result(first + b, y_.data() + (b + 1) * size);
    return parities_.again == parities_.verified;
  }
  bool is_last(std::int64_t first, const T* y) const {
    const std::uint64_t parity = parity_of_result(first - 1, y);
    return parity == last_.parity[0] || parity == last_.parity[1];
  }
  bool is_stored(std::int64_t first) {
    bool same = waits_as_verified(first) && (first == 0 || is_last(first, y_.data()));
    for_each_result(first, [&](std::int64_t to, T value) {
      same = same && (abft::word_of(out_[to]) == abft::word_of(value) || (out_[to] != out_[to] && value != value));
    });
    return same;
  }

  // The last block of a group is kept twice for the next one, with the parities of two readings.
  void keep_last(std::int64_t first) {
    const std::int64_t size = of_.points() * parts_;
    const auto begin = y_.begin() + used(first) * size;
    if (protect_) last_.parity = {parities_.verified.back(), parities_.again.back()};
    for (int i = 0; i < (protect_ ? 2 : 1); ++i) last_.copies[i].assign(begin, begin + size);
  }
  // Copies the copy with one of the parities to the place before the first block.
  void restore_last(std::int64_t first) {
    if (first == 0) return;
    const bool good = !protect_ || is_last(first, last_.copies[0].data());
    std::ranges::copy(last_.copies[good ? 0 : 1], y_.begin());
  }

  const convolution::implementation& of_;
  int parts_;
  const T *signal_, *kernel_;
  T* out_;
  const run::settings& how_;
  run::recorder& seen_;
  inject::active_injector& injector_;
  bool protect_;
  const circle_powers<W>& powers_;
  std::int64_t spectrum_;  // complex numbers of the spectrum of one block
  core::vector<T> x_, f_, p_, y_, k_;
  struct {
    core::vector<T> copies[2];
    std::array<std::uint64_t, 2> parity{};
  } last_;  // the last block of a group, for the next one
  struct {
    core::vector<std::uint64_t> verified, again;  // from the sums, and before they are stored
  } parities_;                                    // one for each block
  struct {
    std::uint64_t seal = 0;
    bool padded = true;
  } spectrum_of_kernel_;
  sums of_kernel_;
};

}  // namespace

template <class T>
void run_convolution(const convolution_call<T>& call) {
  execution_of<T>(call).run();
}

template circle_powers<double> make_circle_powers(const std::vector<std::int64_t>&);
template circle_powers<long double> make_circle_powers(const std::vector<std::int64_t>&);
template void run_convolution(const convolution_call<float>&);
template void run_convolution(const convolution_call<double>&);

}  // namespace ballast::fft
