// See fft_data.hpp.
#include "support/fft_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>
#include <thread>

#include "core/counter_rng.hpp"

namespace ballast::test {

void in_pieces(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) {
  constexpr std::int64_t worth_a_thread = 1 << 17;
  const std::int64_t cores = std::max<std::int64_t>(std::thread::hardware_concurrency(), 1);
  const std::int64_t pieces = std::clamp<std::int64_t>(count / worth_a_thread, 1, cores);
  if (pieces == 1) return body(0, count);
  std::vector<std::jthread> threads;
  for (std::int64_t p = 0; p < pieces; ++p) threads.emplace_back([&, p] { body(count * p / pieces, count * (p + 1) / pieces); });
}

template <class T>
std::vector<T> noise(std::int64_t count, std::uint64_t seed) {
  std::vector<T> made(static_cast<std::size_t>(count));
  // Box-Muller: words 2i and 2i + 1 from two draws.
  in_pieces((count + 1) / 2, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const auto draw = [&](std::uint64_t which) {
        return (static_cast<double>(core::random_bits(seed, which, static_cast<std::uint64_t>(i)) >> 11) + 0.5) * 0x1p-53;
      };
      const double radius = std::sqrt(-2 * std::log(draw(0)));
      const double angle = 2 * std::numbers::pi * draw(1);
      made[static_cast<std::size_t>(2 * i)] = static_cast<T>(radius * std::cos(angle));
      if (2 * i + 1 < count) made[static_cast<std::size_t>(2 * i + 1)] = static_cast<T>(radius * std::sin(angle));
    }
  });
  return made;
}

std::int64_t words_of_signal(const fft::side& side) { return side.length[0] * side.length[1] * side.length[2] * (side.real ? 1 : 2); }

std::int64_t words_of_side(const fft::side& side) { return side.extent * (side.real ? 1 : 2); }

namespace {

// Calls body(word, where) for the packed words of signal b of `side`. `where`: the index in the array of real numbers.
template <class Body>
void each_word(const fft::side& side, std::int64_t b, const Body& body) {
  const std::int64_t parts = side.real ? 1 : 2;
  std::int64_t word = 0;
  for (std::int64_t i = 0; i < side.length[0]; ++i) {
    for (std::int64_t j = 0; j < side.length[1]; ++j) {
      for (std::int64_t k = 0; k < side.length[2]; ++k) {
        const std::int64_t element = b * side.distance + i * side.stride[0] + j * side.stride[1] + k * side.stride[2];
        for (std::int64_t part = 0; part < parts; ++part) body(word++, element * parts + part);
      }
    }
  }
}

}  // namespace

template <class T>
std::vector<T> pack(const fft::side& side, std::int64_t batch, const T* data) {
  const std::int64_t words = words_of_signal(side);
  std::vector<T> made(static_cast<std::size_t>(words * batch));
  for (std::int64_t b = 0; b < batch; ++b) {
    T* to = made.data() + b * words;
    each_word(side, b, [&](std::int64_t word, std::int64_t where) { to[word] = data[where]; });
  }
  return made;
}

template <class T>
std::vector<T> unpack(const fft::side& side, std::int64_t batch, const std::vector<T>& packed, T between) {
  const std::int64_t words = words_of_signal(side);
  std::vector<T> made(static_cast<std::size_t>(words_of_side(side)), between);
  for (std::int64_t b = 0; b < batch; ++b) {
    const T* from = packed.data() + b * words;
    each_word(side, b, [&](std::int64_t word, std::int64_t where) { made[static_cast<std::size_t>(where)] = from[word]; });
  }
  return made;
}

fft::problem in_place_problem(fft::problem problem) {
  if (problem.kind == fft::kind::c2c) return problem;
  const std::size_t axes = problem.shape.size();
  fft::layout real{std::vector<std::int64_t>(axes, 1)}, complex = real;
  std::int64_t stride = problem.shape.back() / 2 + 1;
  for (std::size_t axis = axes - 1; axis-- > 0; stride *= problem.shape[axis]) {
    complex.strides[axis] = stride;
    real.strides[axis] = 2 * stride;
  }
  complex.distance = stride;
  real.distance = 2 * stride;
  problem.input = problem.kind == fft::kind::r2c ? real : complex;
  problem.output = problem.kind == fft::kind::r2c ? complex : real;
  return problem;
}

template <class T>
std::vector<T> filled(std::string_view kind, const fft::side& side, std::int64_t batch, std::uint64_t seed) {
  const std::int64_t parts = side.real ? 1 : 2;
  const std::int64_t words = words_of_signal(side), elements = words / parts;
  const bool single = sizeof(T) == 4;
  std::vector<T> made = noise<T>(words * batch, seed);
  // Calls body(word as double, signal, element of the signal, true for an imaginary part) for all words.
  const auto change = [&](auto&& body) {
    in_pieces(words * batch, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        T& word = made[static_cast<std::size_t>(i)];
        word = static_cast<T>(body(static_cast<double>(word), i / words, i % words / parts, i % parts == 1));
      }
    });
  };
  using index = std::int64_t;
  const auto times = [&](double factor) { change([=](double x, index, index, bool) { return x * factor; }); };
  if (kind == "constant") change([](double, index, index, bool imaginary) { return imaginary ? 0.0 : 1.0; });
  if (kind == "huge") times(single ? 1e30 : 1e300);
  if (kind == "tiny") times(single ? 1e-30 : 1e-300);
  if (kind == "subnormal") times(single ? 1e-41 : 1e-315);
  if (kind == "cauchy") {
    const std::vector<double> other = noise<double>(words * batch, seed + 1);
    change([&](double x, index signal, index element, bool imaginary) {
      const index at = signal * words + element * parts + (imaginary ? 1 : 0);
      return std::clamp(x / other[static_cast<std::size_t>(at)], -1e12, 1e12);
    });
  }
  if (kind == "impulse")
    change([=](double, index, index element, bool imaginary) { return element == elements / 3 && !imaginary ? 1.0 : 0.0; });
  if (kind == "decades") {
    change([=](double x, index signal, index element, bool) {
      return x * std::pow(10, 20 * core::random_uniform(seed, 2, static_cast<std::uint64_t>(signal * elements + element)) - 10);
    });
  }
  if (kind == "cosine") {
    change([=](double, index, index element, bool imaginary) {
      return imaginary ? 0.0 : std::cos(44 * static_cast<double>(element) / static_cast<double>(elements));
    });
  }
  if (kind == "nearly_one") change([](double x, index, index, bool imaginary) { return (imaginary ? 0 : 1) + 1e-6 * x; });
  if (kind == "alternating") change([](double, index, index element, bool) { return element % 2 == 0 ? 1.0 : -1.0; });
  if (kind == "zero") times(0);
  if (kind == "scales") change([](double x, index signal, index, bool) { return x * (signal % 2 == 0 ? 1e-20 : 1e15); });
  if (kind == "ramp")
    change([](double, index, index element, bool imaginary) { return imaginary ? 0.3 : 0.1 + 1e-3 * static_cast<double>(element); });
  return made;
}

double scale_of(const fft::problem& problem, fft::direction way) {
  double points = 1;
  for (const auto n : problem.shape) points *= static_cast<double>(n);
  if (problem.norm == fft::norm::ortho) return 1 / std::sqrt(points);
  const bool divides = (problem.norm == fft::norm::backward) == (way == fft::direction::inverse);
  return divides ? 1 / points : 1;
}

template <class T>
std::vector<fft::wide<T>> reference(const fft::problem& problem, fft::direction way, const fft::geometry& shape, const T* in,
                                    std::int64_t b) {
  using W = fft::wide<T>;
  const auto& n = shape.n;
  const fft::side& from = shape.input;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<std::complex<W>> x(at(shape.points()));
  const auto element = [&](std::int64_t i, std::int64_t j, std::int64_t k) -> std::complex<W> {
    const std::int64_t where = b * from.distance + i * from.stride[0] + j * from.stride[1] + k * from.stride[2];
    return from.real ? std::complex<W>(in[where], 0) : std::complex<W>(in[2 * where], in[2 * where + 1]);
  };
  std::size_t next = 0;
  for (std::int64_t i = 0; i < n[0]; ++i) {
    for (std::int64_t j = 0; j < n[1]; ++j) {
      for (std::int64_t k = 0; k < n[2]; ++k) {
        std::complex<W> z;
        if (shape.kind == fft::kind::c2r) {
          // A half spectrum: the other half is its mirror image. Elements that are mirror images within the half contribute their Hermitian
          // part.
          const auto mirror = [&] { return std::conj(element((n[0] - i) % n[0], (n[1] - j) % n[1], (n[2] - k) % n[2])); };
          z = 2 * k > n[2] ? mirror() : k == 0 || 2 * k == n[2] ? (element(i, j, k) + mirror()) * W(0.5) : element(i, j, k);
        } else {
          z = element(i, j, k);
        }
        x[next++] = way == fft::direction::inverse ? std::conj(z) : z;
      }
    }
  }
  std::int64_t inner = 1;
  for (std::size_t axis = 3; axis-- > 0; inner *= n[axis]) {
    const std::int64_t length = n[axis];
    if (length == 1) continue;
    const std::int64_t lines = shape.points() / length;
    const std::int64_t weight = length * 8;  // the work of one line, so that in_pieces uses all cores for few long lines, too
    in_pieces(lines * weight, [&](std::int64_t first, std::int64_t last) {
      std::vector<std::complex<W>> line(at(length));
      for (std::int64_t l = (first + weight - 1) / weight; l < (last + weight - 1) / weight; ++l) {
        const std::int64_t start = l / inner * inner * length + l % inner;
        for (std::int64_t j = 0; j < length; ++j) line[at(j)] = x[at(start + j * inner)];
        line = fft::dft(std::move(line));
        for (std::int64_t j = 0; j < length; ++j) x[at(start + j * inner)] = line[at(j)];
      }
    });
  }
  const W scale = static_cast<W>(scale_of(problem, way));
  const fft::side& to = shape.output;
  std::vector<W> made;
  made.reserve(at(words_of_signal(to)));
  for (std::int64_t i = 0; i < to.length[0]; ++i) {
    for (std::int64_t j = 0; j < to.length[1]; ++j) {
      for (std::int64_t k = 0; k < to.length[2]; ++k) {
        std::complex<W> z = x[at((i * n[1] + j) * n[2] + k)] * scale;
        if (way == fft::direction::inverse) z = std::conj(z);
        made.push_back(z.real());
        if (!to.real) made.push_back(z.imag());
      }
    }
  }
  return made;
}

double distance::relative() const {
  if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  return size > 0 ? difference / size : difference > 0 ? std::numeric_limits<double>::infinity() : 0;
}

template <class T, class W>
distance distance_of(const T* got, const W* wanted, std::int64_t words, double factor) {
  std::mutex mutex;
  long double difference = 0, size = 0;
  in_pieces(words, [&](std::int64_t first, std::int64_t last) {
    long double d = 0, s = 0;
    for (std::int64_t i = first; i < last; ++i) {
      const long double w = static_cast<long double>(wanted[i]) * factor;
      const long double e = static_cast<long double>(got[i]) - w;
      d += e * e;
      s += w * w;
    }
    const std::lock_guard lock(mutex);
    difference += d;
    size += s;
  });
  return {static_cast<double>(std::sqrt(difference)), static_cast<double>(std::sqrt(size))};
}

#define BALLAST_TEST_FFT_DATA(T)                                                                                                      \
  template std::vector<T> noise<T>(std::int64_t, std::uint64_t);                                                                      \
  template std::vector<T> filled<T>(std::string_view, const fft::side&, std::int64_t, std::uint64_t);                                 \
  template std::vector<T> pack<T>(const fft::side&, std::int64_t, const T*);                                                          \
  template std::vector<T> unpack<T>(const fft::side&, std::int64_t, const std::vector<T>&, T);                                        \
  template std::vector<fft::wide<T>> reference<T>(const fft::problem&, fft::direction, const fft::geometry&, const T*, std::int64_t); \
  template distance distance_of<T, fft::wide<T>>(const T*, const fft::wide<T>*, std::int64_t, double);                                \
  template distance distance_of<T, T>(const T*, const T*, std::int64_t, double);

BALLAST_TEST_FFT_DATA(float)
BALLAST_TEST_FFT_DATA(double)

}  // namespace ballast::test
