// Tables of a line, in more precision than the data before they are rounded once; and the order of its steps.
#include "fft/cpu/line.hpp"

#include <algorithm>
#include <cmath>

namespace ballast::fft::cpu {

namespace {

template <class T, class W>
void append(std::vector<T>& to, const std::complex<W>& z) {
  to.push_back(static_cast<T>(z.real()));
  to.push_back(static_cast<T>(z.imag()));
}

// Radices of n in the order of the stages: powers of two by 8, and 4 or 2 · … for what is left, then odd primes.
std::vector<int> radices(std::int64_t n) {
  std::vector<int> found;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  while (twos > 0) {
    const int bits = twos % 3 == 0 ? 3 : twos == 1 ? 1 : 2;
    found.push_back(1 << bits);
    twos -= bits;
  }
  for (const std::int64_t p : prime_factors(n)) found.push_back(static_cast<int>(p));
  return found;
}

}  // namespace

bool is_direct(std::int64_t n) {
  const auto factors = prime_factors(n);
  return factors.empty() || factors.back() <= k_largest_direct_prime;
}

template <class T>
line<T>::line(form what, std::int64_t n, std::uint64_t stream, bool protect, bool half_spectrum)
    : form_(what), half_spectrum_(half_spectrum), points_(static_cast<double>(n)) {
  length_ = what == form::complex ? n : n / 2;
  rows_in_ = what == form::real_inverse ? length_ + 1 : length_;
  rows_out_ = what == form::real_forward ? length_ + 1 : length_;
  if (what != form::complex) {
    for (std::int64_t k = 0; k <= length_; ++k) append(split_, root_of_unity<wide<T>>(k, n));
  }
  if (is_direct(length_))
    make_stages(length_);
  else
    make_convolution(length_);
  stages_ = static_cast<std::int64_t>(plan_.size()) * (convolution_ > 0 ? 2 : 1);
  for (const stage& each : plan_) butterflies_ += (convolution_ > 0 ? 2 * convolution_ : length_) / each.radix;
  for (const stage& each : plan_) twiddled_ += each.twiddles >= 0 || each.radix % 2 == 1 ? (convolution_ > 0 ? 2 : 1) : 0;
  rows_scratch_ = std::max({rows_in_, rows_out_, convolution_});
  if (protect) make_weights(n, stream);
}

template <class T>
void line<T>::make_stages(std::int64_t n) {
  std::int64_t s = 1;
  for (const int radix : radices(n)) {
    const std::int64_t left = n / s;
    const std::int64_t m = left / radix;
    stage made{radix, s, -1, static_cast<std::int64_t>(roots_.size()), 0};
    if (radix % 2 == 1) {
      for (std::int64_t k = 1; k <= radix / 2; ++k) {
        for (std::int64_t j = 1; j <= radix / 2; ++j) append(roots_, std::conj(root_of_unity<wide<T>>(j * k, radix)));
      }
    }
    if (m > 1) {
      made.twiddles = static_cast<std::int64_t>(twiddles_.size());
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t k = 1; k < radix; ++k) append(twiddles_, root_of_unity<wide<T>>(i * k, left));
      }
      made.count = static_cast<std::int64_t>(twiddles_.size()) - made.twiddles;
    }
    plan_.push_back(made);
    s *= radix;
  }
}

template <class T>
void line<T>::make_convolution(std::int64_t n) {
  convolution_ = smooth_length(2 * n - 1);
  make_stages(convolution_);
  for (std::int64_t j = 0; j < n; ++j) append(chirp_, chirp<wide<T>>(j, n));
  for (const auto& z : chirp_filter<wide<T>>(n, convolution_)) append(filter_, z / static_cast<wide<T>>(convolution_));
}

template <class T>
void line<T>::make_weights(std::int64_t n, std::uint64_t stream) {
  const auto made = make_axis_weights<T>(n, choose_weights(form_, n, stream), rows_out_);
  // The kept half of a spectrum stands for the whole: its norm is up to √2 larger than what is summed.
  const bool half = form_ == form::real_inverse || half_spectrum_;
  sensitivity_ = (half ? std::sqrt(2.0) : 1) * (convolution_ > 0 ? k_convolution_sensitivity : 1);
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
          append(in, b[at(2 * j + 1)]);
        } else if (half) {
          // z_j stands for itself and for its mirror image conj(z_j); the weights of an inverse transform are b backwards.
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
        append(out, a[at(2 * k + 1)]);
      } else {
        append(out, turned(a[at(k)]));
      }
    }
  }
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

template <class T>
T* line<T>::run_stages(T* x, T* y, bool swapped, std::int64_t first_step, read_ahead& ahead, const striker<T>& strike) const {
  const auto& kernel = kernels<T>();
  const std::int64_t n = convolution_ > 0 ? convolution_ : length_;
  const std::int64_t scalars = n * 2 * kernel.lanes;
  std::int64_t twiddled = first_step > 0 ? twiddled_ / 2 : 0;
  std::int64_t step = first_step;
  for (const stage& now : plan_) {
    const T* twiddles = now.twiddles < 0 ? nullptr : twiddles_.data() + now.twiddles;
    if constexpr (inject::active_injector::enabled) {
      if (step == stages_ - 1) strike(inject::site::fft_intermediate, 0, x, scalars);
      std::vector<T> struck(twiddles, twiddles + now.count);
      // Without twiddle factors, an odd butterfly's own factors are struck.
      const std::int64_t half = now.radix % 2 == 1 ? now.radix / 2 : 0;
      std::vector<T> roots(roots_.begin() + now.roots, roots_.begin() + now.roots + 2 * half * half);
      // The first radix − 1 factors are 1.
      const std::int64_t trivial = 2 * (now.radix - 1);
      if (now.count > 0)
        strike(inject::site::fft_twiddle, twiddled++, struck.data() + trivial, now.count - trivial);
      else if (!roots.empty())
        strike(inject::site::fft_twiddle, twiddled++, roots.data(), static_cast<std::int64_t>(roots.size()));
      kernel.stage(now.radix, x, y, n, now.s, now.count > 0 ? struck.data() : nullptr, roots.data(), swapped, ahead);
      strike(inject::site::fft_stage, step, y, scalars);
    } else {
      kernel.stage(now.radix, x, y, n, now.s, twiddles, roots_.data() + now.roots, swapped, ahead);
    }
    std::swap(x, y);
    ++step;
  }
  (void)twiddled;
  (void)scalars;
  return x;
}

template <class T>
T* line<T>::run(T* x, T* y, bool swapped, read_ahead ahead, const striker<T>& strike) const {
  ahead.per_step = butterflies_ > 0 ? 2 * ahead.lines / butterflies_ + 1 : ahead.lines;
  const auto& kernel = kernels<T>();
  if (form_ == form::real_forward) swapped = false;
  if (form_ == form::real_inverse) {
    kernel.join_real(x, y, length_, split_.data());
    std::swap(x, y);
    swapped = true;
  }
  const auto other = [&](const T* p) { return p == x ? y : x; };
  T* done = x;
  if (convolution_ > 0) {
    kernel.multiply_rows(x, y, length_, convolution_, chirp_.data(), swapped);
    done = run_stages(y, x, swapped, 0, ahead, strike);
    kernel.multiply_rows(done, done, convolution_, convolution_, filter_.data(), swapped);
    done = run_stages(done, other(done), !swapped, static_cast<std::int64_t>(plan_.size()), ahead, strike);
    kernel.multiply_rows(done, done, length_, length_, chirp_.data(), swapped);
  } else {
    done = run_stages(x, y, swapped, 0, ahead, strike);
    if constexpr (inject::active_injector::enabled) {
      if (stages_ == 0) {
        strike(inject::site::fft_intermediate, 0, done, length_ * 2 * kernel.lanes);
        strike(inject::site::fft_stage, 0, done, length_ * 2 * kernel.lanes);
      }
    }
  }
  if (form_ == form::real_forward) {
    T* to = other(done);
    kernel.split_real(done, to, length_, split_.data());
    done = to;
  }
  return done;
}

template class line<float>;
template class line<double>;

}  // namespace ballast::fft::cpu
