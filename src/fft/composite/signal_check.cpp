// Weights, sums and verdicts of the check from end to end.
#include "fft/composite/signal_check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "core/at.hpp"
#include "fft/composite/strided_array.hpp"
#include "fft/sites.hpp"
#include "fft/tables/real_to_real.hpp"
#include "fft/thresholds.hpp"
#include "inject/injector.hpp"

namespace ballast::fft::composite {

using core::at;
using number = std::complex<double>;

namespace {

template <class W>
weight_row rounded(const std::vector<std::complex<W>>& weights, std::int64_t count) {
  weight_row made;
  for (std::int64_t k = 0; k < count; ++k) {
    made.re.push_back(static_cast<double>(weights[at(k)].real()));
    made.im.push_back(static_cast<double>(weights[at(k)].imag()));
  }
  return made;
}

// `half`: this axis of a real transform stores n/2 + 1 elements on one side.
template <class W>
axis_check weights_of(const axis& of, std::size_t number_of_axis, kind what, direction way, bool half) {
  axis_check made;
  const std::int64_t rows = of.out_length;
  const std::vector<number> drawn = draw_weights(form::complex, rows, number_of_axis).a;
  for (int v = 0; v < k_vectors; ++v) {
    std::vector<std::complex<W>> a(at(of.n));
    for (std::int64_t k = 0; k < rows; ++k) {
      const number value = v == 1 && k >= second_half(rows) ? -drawn[at(k)] : drawn[at(k)];
      a[at(k)] = {static_cast<W>(value.real()), static_cast<W>(value.imag())};
    }
    made.out[v] = rounded(a, rows);
    if (what == kind::r2r) {
      made.in[v] = rounded(transposed_real_transform(way == direction::forward ? of.what : inverse_of(of.what), a), of.n);
      continue;
    }
    const auto b = dft(std::move(a));
    // The inverse transform has the weights in reverse; the conjugate of element k of a spectrum of reals is element n − k.
    std::vector<std::complex<W>> own(b.size()), mirrored(b.size());
    for (std::int64_t k = 0; k < of.n; ++k) {
      const std::int64_t back = (of.n - k) % of.n;
      const bool forward = way == direction::forward;
      // An element of a half spectrum stands for two, or shares its place with its conjugate.
      const W share = what != kind::c2r || !half ? W(1) : k == 0 || 2 * k == of.n ? W(0.5) : W(1);
      own[at(k)] = b[at(forward ? k : back)] * share;
      mirrored[at(k)] = std::conj(b[at(forward ? back : k)] * share);
    }
    made.in[v] = rounded(own, of.in_length);
    if (what == kind::c2r) made.in_mirrored[v] = rounded(mirrored, of.in_length);
  }
  return made;
}

// The largest ‖L x‖²/‖x‖² of one axis, about.
double growth_of(const axis& of, kind what, direction way) {
  const auto n = static_cast<double>(of.n);
  if (what != kind::r2r) return n;
  switch (way == direction::forward ? of.what : inverse_of(of.what)) {
    case real_kind::r2hc:
    case real_kind::dht: return n;
    case real_kind::dst1: return 2 * (n + 1);
    default: return 2 * n;
  }
}

// Adds x to an unevaluated sum of two doubles.
inline void add_exactly(double& high, double& low, double x) {
  const double sum = high + x;
  const double part = sum - high;
  low += (high - (sum - part)) + (x - part);
  high = sum;
}

// Returns the part of a chunk's parity that scalars have whose places are `scalars` further than those it was taken with.
template <class T>
std::uint64_t further(std::uint64_t parity, std::int64_t scalars) {
  return cpu::turned<T>(static_cast<cpu::word_of<T>>(parity), cpu::chunk_turn<T> * scalars);
}

// The sums of one row of an array, four numbers of each lane: blocks of 16 elements in double, which are then added exactly.
class row_sums {
 public:
  explicit row_sums(std::int64_t lanes) : lanes_(lanes), block_(at(4 * lanes)), high_(at(4 * lanes)), low_(at(4 * lanes)) {}

  // The same in the vector layer, of reals, which also adds the squares, unless they are null, and returns the parity. halves: the second
  // weights are those of an output.
  template <class T>
  std::uint64_t sum(const cpu::chunk_kernels<T>& by, const T* row, std::int64_t count, const weight_row (&weights)[k_vectors], bool halves,
                    double* squares) {
    std::fill(high_.begin(), high_.end(), 0.0);
    std::fill(low_.begin(), low_.end(), 0.0);
    const auto part = [&](std::int64_t first, std::int64_t last, bool both, int sum) {
      cpu::chunk_sum<T> of{.from = row + first * lanes_, .rows = last - first, .lanes = lanes_, .squares = squares};
      for (int v = 0; v < (both ? k_vectors : 1); ++v) {
        of.re[v] = weights[v].re.data() + first;
        of.im[v] = weights[v].im.data() + first;
      }
      of.high = high_.data() + 2 * sum * lanes_;
      of.low = low_.data() + 2 * sum * lanes_;
      return by.sum(of);
    };
    if (!halves) return part(0, count, true, 0);
    const std::int64_t middle = second_half(count);
    const std::uint64_t parity = part(0, middle, false, 0) ^ further<T>(part(middle, count, false, 1), middle);
    for (std::int64_t i = 0; i < 2 * lanes_; ++i) {
      const std::size_t own = at(i), other = at(i + 2 * lanes_);
      const double x = high_[own], y = high_[other], low = low_[own], other_low = low_[other];
      low_[own] = low + other_low;
      low_[other] = low - other_low;
      high_[other] = x;
      add_exactly(high_[own], low_[own], y);
      add_exactly(high_[other], low_[other], -y);
    }
    return parity;
  }

  template <class T>
  void sum(const T* row, std::int64_t count, int parts, const weight_row (&weights)[k_vectors]) {
    std::fill(high_.begin(), high_.end(), 0.0);
    std::fill(low_.begin(), low_.end(), 0.0);
    for (std::int64_t first = 0; first < count; first += k_block) {
      const std::int64_t last = std::min(count, first + k_block);
      std::fill(block_.begin(), block_.end(), 0.0);
      if (lanes_ == 1)
        add_block_of_one(row, first, last, parts, weights);
      else
        add_block(row, first, last, parts, weights);
      for (std::size_t i = 0; i < block_.size(); ++i) add_exactly(high_[i], low_[i], block_[i]);
    }
  }

  // Adds the row's sums, times the weights of its place along the other axes, to those of the array.
  void add_to(lane_values& total, const number (&lead)[k_vectors]) const {
    for (int v = 0; v < k_vectors; ++v) {
      for (std::int64_t l = 0; l < lanes_; ++l) {
        const std::size_t re = at(2 * v * lanes_ + l), im = re + at(lanes_);
        if (lead[v] == 1.0) {
          add_exactly(total.high[re], total.low[re], high_[re]);
          add_exactly(total.high[im], total.low[im], high_[im]);
          total.low[re] += low_[re];
          total.low[im] += low_[im];
        } else {
          const number row(high_[re] + low_[re], high_[im] + low_[im]);
          const number value = multiply(row, lead[v]);
          add_exactly(total.high[re], total.low[re], value.real());
          add_exactly(total.high[im], total.low[im], value.imag());
        }
      }
    }
  }

 private:
  static constexpr std::int64_t k_block = 16;

  template <class T>
  void add_block(const T* row, std::int64_t first, std::int64_t last, int parts, const weight_row (&weights)[k_vectors]) {
    for (std::int64_t j = first; j < last; ++j) {
      const T* const x = row + j * lanes_ * parts;
      for (int v = 0; v < k_vectors; ++v) {
        double* const re = block_.data() + 2 * v * lanes_;
        double* const im = re + lanes_;
        const double a = weights[v].re[at(j)], b = weights[v].im[at(j)];
        if (parts == 1) {
          for (std::int64_t l = 0; l < lanes_; ++l) {
            const double value = x[l];
            re[l] += a * value;
            im[l] += b * value;
          }
        } else {
          for (std::int64_t l = 0; l < lanes_; ++l) {
            const double real = x[2 * l], imaginary = x[2 * l + 1];
            re[l] += a * real - b * imaginary;
            im[l] += a * imaginary + b * real;
          }
        }
      }
    }
  }

  // A single lane: four partial sums of each number, so that an addition does not wait for the one before it.
  template <class T>
  void add_block_of_one(const T* row, std::int64_t first, std::int64_t last, int parts, const weight_row (&weights)[k_vectors]) {
    constexpr int k_partial = 4;
    for (int v = 0; v < k_vectors; ++v) {
      const double *const wr = weights[v].re.data(), *const wi = weights[v].im.data();
      double re[k_partial] = {}, im[k_partial] = {};
      const auto add = [&](std::int64_t j, int p) {
        if (parts == 1) {
          const double value = row[j];
          re[p] += wr[j] * value;
          im[p] += wi[j] * value;
        } else {
          const double real = row[2 * j], imaginary = row[2 * j + 1];
          re[p] += wr[j] * real - wi[j] * imaginary;
          im[p] += wr[j] * imaginary + wi[j] * real;
        }
      };
      std::int64_t j = first;
      for (; j + k_partial <= last; j += k_partial) {
        for (int p = 0; p < k_partial; ++p) add(j + p, p);
      }
      for (; j < last; ++j) add(j, 0);
      block_[at(2 * v)] = (re[0] + re[1]) + (re[2] + re[3]);
      block_[at(2 * v + 1)] = (im[0] + im[1]) + (im[2] + im[3]);
    }
  }

  std::int64_t lanes_;
  core::vector<double> block_, high_, low_;
};

// Calls visit(first element, lead) for each row of a dense array, lead being the products of the weights that `of` gives for the axes
// before the last.
template <class Weights, class Visit>
void each_row(const std::vector<std::int64_t>& lengths, const Weights& of, const Visit& visit) {
  const std::size_t rank = lengths.size();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < rank; ++i) rows *= lengths[i];
  for (std::int64_t row = 0; row < rows; ++row) {
    number lead[k_vectors] = {1, 1};
    std::int64_t rest = row;
    for (std::size_t i = rank - 1; i-- > 0; rest /= lengths[i]) {
      for (int v = 0; v < k_vectors; ++v) lead[v] = multiply(lead[v], of(i)[v][rest % lengths[i]]);
    }
    visit(row * lengths.back(), lead);
  }
}

// Adds Σ w z over a dense array, w the product of the weights that `of` gives for each axis.
template <class T, class Weights>
void add_sums(const T* z, const std::vector<std::int64_t>& lengths, int parts, std::int64_t lanes, const Weights& of, lane_values& total) {
  row_sums sums(lanes);
  each_row(lengths, of, [&](std::int64_t first, const auto& lead) {
    sums.sum(z + first * lanes * parts, lengths.back(), parts, of(lengths.size() - 1));
    sums.add_to(total, lead);
  });
}

// The same in the vector layer, of reals, with the parity. The squares are computed if there is room for them.
template <class T, class Weights>
void add_sums(const cpu::chunk_kernels<T>& by, const T* z, const std::vector<std::int64_t>& lengths, std::int64_t lanes, const Weights& of,
              bool output, lane_values& total) {
  row_sums sums(lanes);
  each_row(lengths, of, [&](std::int64_t first, const auto& lead) {
    const std::uint64_t parity = sums.sum(by, z + first * lanes, lengths.back(), of(lengths.size() - 1), output,
                                          total.squares.empty() ? nullptr : total.squares.data());
    total.parity ^= further<T>(parity, first);
    sums.add_to(total, lead);
  });
}

// Returns the parity of the lanes that have a signal.
template <class T>
std::uint64_t parity_of(const T* z, std::int64_t elements, int parts, std::int64_t lanes, std::int64_t used) {
  if (lanes == 1) return parity_of_run(z, elements * parts, 0, 0);
  // Scalars of one row of the array join side by side.
  core::vector<cpu::word_of<T>> joined(at(used * parts), 0);
  for (std::int64_t j = 0; j < elements; ++j) {
    const T* const row = z + j * lanes * parts;
    const int turn = cpu::chunk_turn<T> * parts;
    for (std::int64_t i = 0; i < used * parts; ++i) joined[at(i)] = std::rotl(joined[at(i)], turn) ^ std::bit_cast<cpu::word_of<T>>(row[i]);
  }
  std::uint64_t made = 0;
  for (std::int64_t i = 0; i < used * parts; ++i)
    made ^= cpu::turned<T>(joined[at(i)], cpu::chunk_turn<T> * ((elements - 1) * parts + i % parts) + i / parts);
  return made;
}

// Returns Σ |z|² of each lane.
template <class T>
core::vector<double> squares_of(const T* z, std::int64_t elements, int parts, std::int64_t lanes) {
  if (lanes > 1) {
    core::vector<double> made(at(lanes), 0.0);
    for (std::int64_t j = 0; j < elements; ++j) {
      const T* const row = z + j * lanes * parts;
      for (std::int64_t l = 0; l < lanes; ++l) {
        const double re = row[l * parts], im = parts == 1 ? 0 : row[l * parts + 1];
        made[at(l)] += re * re + im * im;
      }
    }
    return made;
  }
  // Partial sums, so that an addition does not wait for the one before it.
  constexpr std::int64_t k_partial = 8;
  double partial[k_partial] = {};
  const std::int64_t scalars = elements * parts;
  std::int64_t i = 0;
  for (; i + k_partial <= scalars; i += k_partial) {
    for (std::int64_t p = 0; p < k_partial; ++p) {
      const double value = z[i + p];
      partial[p] += value * value;
    }
  }
  for (; i < scalars; ++i) partial[0] += static_cast<double>(z[i]) * static_cast<double>(z[i]);
  return core::vector<double>(1, std::accumulate(std::begin(partial), std::end(partial), 0.0));
}

// Returns ‖z‖₂ of a lane whose sum of squares is out of range.
template <class T>
double careful_norm(const T* z, std::int64_t elements, int parts, std::int64_t lanes, std::int64_t lane) {
  long double squares = 0;
  for (std::int64_t j = 0; j < elements; ++j) {
    for (int p = 0; p < parts; ++p) {
      const auto value = static_cast<long double>(z[(j * lanes + lane) * parts + p]);
      squares += value * value;
    }
  }
  return static_cast<double>(std::sqrt(squares));
}

template <class T>
bool is_finite(const T* z, std::int64_t elements, int parts, std::int64_t lanes, std::int64_t lane) {
  for (std::int64_t j = 0; j < elements; ++j) {
    for (int p = 0; p < parts; ++p) {
      if (!std::isfinite(z[(j * lanes + lane) * parts + p])) return false;
    }
  }
  return true;
}

std::int64_t product(const std::vector<std::int64_t>& lengths) {
  std::int64_t made = 1;
  for (const std::int64_t n : lengths) made *= n;
  return made;
}

}  // namespace

template <class T>
signal_check<T>::signal_check(const array_problem& value, direction way, const cpu::chunk_kernels<T>* kernels)
    : kernels_(kernels),
      in_real_(value.input.real),
      out_real_(value.output.real),
      half_input_(value.kind == kind::c2r),
      points_(1),
      kappa_(k_kappa * k_convolution_sensitivity * (half_input_ ? std::numbers::sqrt2 : 1.0)) {
  for (std::size_t i = 0; i < value.axes.size(); ++i) {
    const axis& each = value.axes[i];
    in_lengths_.push_back(each.in_length);
    out_lengths_.push_back(each.out_length);
    points_ *= growth_of(each, value.kind, way);
    axes_.push_back(weights_of<wide<T>>(each, i, value.kind, way, i + 1 == value.axes.size()));
  }
}

template <class T>
lane_values signal_check<T>::sum(const T* z, std::int64_t lanes, std::int64_t used, bool output) const {
  lane_values made;
  made.high.assign(at(4 * lanes), 0.0);
  made.low.assign(at(4 * lanes), 0.0);
  const std::vector<std::int64_t>& lengths = output ? out_lengths_ : in_lengths_;
  const bool real = output ? out_real_ : in_real_;
  const auto weights = [&](std::size_t i) -> const auto& { return output ? axes_[i].out : axes_[i].in; };
  if (real && kernels_ != nullptr && (lanes == 1 || lanes % kernels_->lanes == 0)) {
    if (!output) made.squares.assign(at(lanes), 0.0);
    add_sums(*kernels_, z, lengths, lanes, weights, output, made);
    if (used != lanes) made.parity = parity_of(z, product(lengths), 1, lanes, used);
    return made;
  }
  const int parts = real ? 1 : 2;
  add_sums(z, lengths, parts, lanes, weights, made);
  made.parity = parity_of(z, product(lengths), parts, lanes, used);
  if (output) return made;
  made.squares = squares_of(z, product(lengths), parts, lanes);
  if (!half_input_) return made;
  // Σ w conj(z) is the conjugate of Σ conj(w) z.
  lane_values mirrored;
  mirrored.high.assign(at(4 * lanes), 0.0);
  mirrored.low.assign(at(4 * lanes), 0.0);
  add_sums(
      z, in_lengths_, 2, lanes, [&](std::size_t i) -> const auto& { return axes_[i].in_mirrored; }, mirrored);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const double sign = i / at(lanes) % 2 == 0 ? 1 : -1;
    add_exactly(made.high[i], made.low[i], sign * mirrored.high[i]);
    made.low[i] += sign * mirrored.low[i];
  }
  return made;
}

template <class T>
encoded signal_check<T>::encode(const T* x, std::int64_t lanes, std::int64_t used) const {
  encoded made;
  made.sums = sum(x, lanes, used, false);
  const int parts = in_real_ ? 1 : 2;
  const std::int64_t elements = product(in_lengths_);
  for (std::int64_t l = 0; l < used; ++l) {
    const double sum_of_squares = made.sums.squares[at(l)];
    const bool in_range = sum_of_squares > 1e-280 && sum_of_squares < 1e280;
    made.norms.push_back(in_range ? std::sqrt(sum_of_squares) : careful_norm(x, elements, parts, lanes, l));
    made.finite.push_back(in_range || is_finite(x, elements, parts, lanes, l));
  }
  return made;
}

template <class T>
abft::finding signal_check<T>::verify(const encoded& input, const T* y, std::int64_t lanes, std::int64_t used, std::int64_t first,
                                      const inject::position& here, const transform_args& how, std::uint64_t& parity) const {
  const lane_values output = sum(y, lanes, used, true);
  parity = output.parity;
  const double scale = std::max(static_cast<double>(static_cast<T>(how.check_scale)), 0.0);
  core::vector<double> tau, twin;
  for (std::int64_t l = 0; l < used; ++l)
    tau.push_back(thresholds::residual<T>(points_, input.norms[at(l)], kappa_) * scale + thresholds::output_underflow<T>(points_));
  twin = tau;
  how.injector.strike(site::threshold, here, tau.data(), used);
  core::vector<std::uint32_t> words;
  core::vector<double> sizes;
  for (int v = 0; v < k_vectors; ++v) {
    for (std::int64_t l = 0; l < used; ++l) {
      double part[2];
      for (int p = 0; p < 2; ++p) {
        const std::size_t i = at((2 * v + p) * lanes + l);
        part[p] = (output.high[i] - input.sums.high[i] * scale) + (output.low[i] - input.sums.low[i] * scale);
      }
      // Sums of results that are not finite are not, either.
      sizes.push_back(std::hypot(part[0], part[1]));
      abft::guarded_threshold limit(tau[at(l)]);
      limit.twin = twin[at(l)];
      words.push_back(abft::verify(sizes.back(), limit));
    }
  }
  how.injector.strike(site::comparison, here, words.data(), static_cast<std::int64_t>(words.size()));
  abft::finding now;
  bool repeat = false;
  for (std::int64_t l = 0; l < used; ++l) {
    // No checksum can judge Inf and NaN that the data contain, or numbers whose sums may overflow.
    const bool judged = input.finite[at(l)] && input.norms[at(l)] < abft::overflow_norm<T>(16 * points_);
    for (int v = 0; v < k_vectors; ++v) {
      const std::size_t i = at(v * used + l);
      const bool fails = judged && words[i] != abft::k_pass;
      if (fails ? now.word == abft::k_pass : !repeat && now.word == abft::k_pass && (!judged || sizes[i] > k_repeat_share * twin[at(l)])) {
        now.index = first + l;
        now.residual = sizes[i];
        now.threshold = fails ? tau[at(l)] : tau[at(l)] * k_repeat_share;
        if (fails)
          now.word = abft::k_fail;
        else
          repeat = true;
      }
    }
  }
  now.judged = now.word != abft::k_pass || !repeat;
  return now;
}

template class signal_check<float>;
template class signal_check<double>;

}  // namespace ballast::fft::composite
