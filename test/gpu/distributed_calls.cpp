// The stage `distributed`, QR and transforms on several devices of one process: errors beside a call on one device, and
// times of whole calls whose operands lie in pageable memory of the host, of transforms whose operands lie divided on the devices, and,
// where the call says so, of calls whose operands lie in the memory of the devices.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ballast/fft_group.hpp>
#include <ballast/qr_columns.hpp>
#include <ballast/qr_rows.hpp>

#include "../../bench/stopwatch.hpp"
#include "cuda/device/device.hpp"
#include "distributed.hpp"
#include "group/state.hpp"
#include "large_operands.hpp"
#include "output.hpp"

namespace ballast::gpu_check {
namespace {

constexpr int k_repeated = 3;
constexpr const char* k_transforms[] = {"fft_c2c_f32_n512x512x512_b1_fwd", "fft_c2c_f32_n1024x1024x1024_b1_fwd",
                                        "fft_c2c_f64_n512x512x512_b1_fwd", "fft_r2c_f32_n512x512x512_b1_fwd",
                                        "fft_c2c_f32_n16384x16384_b1_fwd", "fft_c2c_f32_n134217728_b1_fwd"};
constexpr const char* k_transforms_quick[] = {"fft_c2c_f32_n64x64x64_b1_fwd"};
constexpr const char* k_matrices[] = {"qr_f64_m1048576_n128", "qr_f32_m1048576_n128", "qr_f64_m200000_n32"};
constexpr const char* k_squares[] = {"qr_f64_m32768_n32768", "qr_f32_m32768_n32768", "qr_f64_m16384_n16384", "qr_f32_m16384_n16384"};
constexpr const char* k_squares_quick[] = {"qr_f64_m2048_n2048"};
constexpr const char* k_matrices_quick[] = {"qr_f64_m20000_n32"};

template <class T>
constexpr double k_unit = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;

// How often a call is timed whose operand of so many bytes lies in pageable memory: such a call of 1 GB takes a second.
int repetitions(std::size_t bytes) { return bytes >= std::size_t{1} << 29 ? 1 : k_repeated; }

// How blocks went between the devices in the last call of a group.
const char* road_of(const execution& where) {
  switch (where.group.internal()->road.load()) {
    case wire::road::peers: return "peer";
    case wire::road::host: return "host";
    case wire::road::link:
    case wire::road::none: break;
  }
  return "none";
}

// Prints the times of work(), which returns a report, and whether its result is right; of transforms on a group also the road, the time
// from operands in the memory of the devices to a result there, "inside", and the part of it in which the first device only exchanged.
// prepare() comes before each call and is not timed.
template <class Work, class Error, std::invocable Prepare>
int timed(const char* token, const std::string& what, const std::vector<int>& devices, const execution& where, double limit,
          const Work& work, const Error& error, const Prepare& prepare, int repeated = k_repeated) {
  const protection level = where.protection;
  row line("distributed call");
  line.add("token", token).add("call", what).add("devices", text_of(devices)).add("protection", to_string(level));
  try {
    std::vector<double> times, inside, exchange;
    std::uint64_t detected = 0;
    for (int round = 0; round <= repeated; ++round) {
      prepare();
      const bench::stopwatch clock;
      detected += work().detected;
      if (round == 0) continue;  // the first call loads kernels
      times.push_back(1e3 * clock.seconds());
      if (!where.group) continue;
      inside.push_back(1e3 * where.group.internal()->seconds.load());
      exchange.push_back(1e3 * where.group.internal()->exchange_seconds.load());
    }
    std::ranges::sort(times);
    const double wrong = error();
    const bool pass = wrong <= limit && detected == 0;
    if (where.group) {
      std::ranges::sort(inside);
      line.add("road", road_of(where));
      std::ranges::sort(exchange);
      if (inside.front() > 0) line.add("inside", inside[inside.size() / 2]).add("exchange", exchange[exchange.size() / 2]);
    }
    line.add("milliseconds", times[times.size() / 2]).add("low", times.front()).add("high", times.back());
    line.add("error", wrong).add("limit", limit).add("detected", detected).add("pass", pass).print();
    return pass ? 0 : 1;
  } catch (const std::exception& thrown) {
    line.add("pass", false).add("wrong", thrown.what()).print();
    return 1;
  }
}

template <class Work, class Error>
int timed(const char* token, const std::string& what, const std::vector<int>& devices, const execution& where, double limit,
          const Work& work, const Error& error, int repeated = k_repeated) {
  return timed(
      token, what, devices, where, limit, work, error, [] {}, repeated);
}

// ‖a − b‖ / ‖b‖
template <class T>
double difference(std::span<const std::complex<T>> a, std::span<const std::complex<T>> b) {
  const auto of = [&](const auto& number) {
    return sum_in_threads(static_cast<std::int64_t>(a.size()), [&](std::int64_t first, std::int64_t last) {
      double sum = 0;
      for (auto e = static_cast<std::size_t>(first); e < static_cast<std::size_t>(last); ++e) sum += std::norm(number(e));
      return sum;
    });
  };
  const double off = of([&](std::size_t e) { return static_cast<std::complex<double>>(a[e]) - static_cast<std::complex<double>>(b[e]); });
  return std::sqrt(off / of([&](std::size_t e) { return static_cast<std::complex<double>>(b[e]); }));
}

// Operands that lie divided on a list of devices: the data are loaded once for all transforms of them.
template <class In>
struct divided_operands {
  divided_operands(const std::vector<int>& list, std::span<const In> in) : devices(list), whole(in) {
    for (const int each : list) {
      const cuda::device_scope there(each);
      on.emplace_back(cuda::current_device());
    }
  }
  // The first axis is divided: each part is a stretch of the data.
  template <class T>
  void load(const fft::group_plan<T>& plan) {
    std::size_t first = 0;
    for (std::size_t p = 0; p < on.size(); ++p) {
      const auto count = static_cast<std::size_t>(plan.data_of(static_cast<int>(p)).size());
      if (parts.size() <= p) {
        from.emplace_back(on[p].device(), static_cast<std::int64_t>(count * sizeof(In)));
        on[p].load(from[p].data(), whole.data() + first, from[p].bytes());
        parts.emplace_back(static_cast<const In*>(from[p].data()), count);
      }
      if (parts[p].size() != count) throw std::logic_error("plans of one transform divide its data differently");
      first += count;
    }
  }

  std::vector<int> devices;
  std::span<const In> whole;
  std::vector<staging> on;
  std::vector<cuda::device_buffer> from;
  std::vector<std::span<const In>> parts;
};

// The difference of divided spectra from the whole one, of every 97th element.
template <class T>
double difference_of_parts(const std::vector<cuda::device_buffer>& parts, const std::vector<staging>& on, const fft::group_plan<T>& plan,
                           bool one_dimension, std::span<const std::complex<T>> expected) {
  constexpr std::int64_t step = 97;
  std::array<std::int64_t, 3> all = {1, 1, 1};
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const fft::box part = plan.spectrum_of(static_cast<int>(p));
    for (std::size_t a = 0; a < 3; ++a) all[a] = std::max(all[a], part.first[a] + part.count[a]);
  }
  const auto number_of = [&](const fft::box& part, std::int64_t place) {
    std::array<std::int64_t, 3> at{};
    for (std::size_t i = 3; i-- > 0;) {
      const auto a = static_cast<std::size_t>(part.order[i]);
      at[a] = part.first[a] + place % part.count[a];
      place /= part.count[a];
    }
    return static_cast<std::size_t>(one_dimension ? at[0] + all[0] * at[1] : (at[0] * all[1] + at[1]) * all[2] + at[2]);
  };
  std::mutex adding;
  double off = 0, size = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const fft::box part = plan.spectrum_of(static_cast<int>(p));
    constexpr auto element = static_cast<std::int64_t>(sizeof(std::complex<T>));
    on[p].read(parts[p].data(), part.size() * element, [&](const std::byte* bytes, std::int64_t at, std::int64_t chunk) {
      const auto* const found = reinterpret_cast<const std::complex<T>*>(bytes);
      const std::int64_t begin = at / element, end = begin + chunk / element, from = (begin + step - 1) / step;
      work_in_threads((end + step - 1) / step - from, [&](std::int64_t first, std::int64_t last) {
        double part_off = 0, part_size = 0;
        for (std::int64_t e = (from + first) * step; e < (from + last) * step; e += step) {
          const auto right = static_cast<std::complex<double>>(expected[number_of(part, e)]);
          part_off += std::norm(static_cast<std::complex<double>>(found[e - begin]) - right);
          part_size += std::norm(right);
        }
        const std::lock_guard lock(adding);
        off += part_off;
        size += part_size;
      });
    });
  }
  return std::sqrt(off / size);
}

// Forward transforms of operands that lie divided in the memory of the devices, in both orders; on several devices also with the exchange
// after the lines, so that "exchange" is all of it.
template <class T, class In>
int divided(const char* token, const fft::problem& of, const execution& where, divided_operands<In>& operands,
            std::span<const std::complex<T>> expected, double bound) {
  constexpr int repeated = 9;
  int failed = 0;
  struct way {
    const char* name;
    fft::result_order order;
    bool overlap;
  };
  constexpr way ways[] = {{"transposed", fft::result_order::transposed, true},
                          {"transposed, exchange after lines", fft::result_order::transposed, false},
                          {"natural", fft::result_order::natural, true},
                          {"natural, exchange after lines", fft::result_order::natural, false}};
  for (const way& each : ways) {
    if (each.order == fft::result_order::natural && of.kind == fft::kind::r2c && of.shape.size() == 1) continue;  // there is none
    if (!each.overlap && operands.devices.size() == 1) continue;
    where.group.internal()->overlap = each.overlap;
    const fft::group_plan<T> plan(of.shape, where, {.real = of.kind == fft::kind::r2c, .order = each.order});
    operands.load(plan);
    std::vector<cuda::device_buffer> to;
    std::vector<std::span<std::complex<T>>> results;
    for (std::size_t p = 0; p < operands.devices.size(); ++p) {
      const auto count = static_cast<std::size_t>(plan.spectrum_of(static_cast<int>(p)).size());
      to.emplace_back(operands.on[p].device(), static_cast<std::int64_t>(count * sizeof(std::complex<T>)));
      results.emplace_back(static_cast<std::complex<T>*>(to[p].data()), count);
    }
    failed += timed(
        token, std::string("forward, divided, ") + each.name, operands.devices, where, bound,
        [&] {
          return plan.forward_divided(std::span<const std::span<const In>>(operands.parts),
                                      std::span<const std::span<std::complex<T>>>(results));
        },
        [&] { return difference_of_parts(to, operands.on, plan, of.shape.size() == 1, expected); }, repeated);
  }
  return failed;
}

// Forward transforms: on one device, on several in natural order, and transposed, whose time alone is of interest. From 2 GiB on a call
// with operands in pageable memory takes seconds: then those in device memory alone are timed.
template <class T, class In>
int transform(const char* token, const fft::problem& of, const time_limit& limit) {
  using complex = std::complex<T>;
  const bool real = of.kind == fft::kind::r2c;
  const fft::group_plan<T> whole(of.shape, where_of({0}, protection::off), {.real = real});
  const host_memory<T> words(static_cast<std::size_t>(whole.data().size()) * sizeof(In) / sizeof(T));
  fill_with_numbers(words.values(), 1);
  const std::span<const In> in(reinterpret_cast<const In*>(words.values().data()), static_cast<std::size_t>(whole.data().size()));
  const host_memory<complex> right(static_cast<std::size_t>(whole.spectrum().size()));
  const std::span<const complex> expected = right.values();
  // Two results, each within 4 u √(log₂ N + 1) of the right one.
  const double bound = 8 * k_unit<T> * std::sqrt(std::log2(static_cast<double>(in.size())) + 1);
  const bool large = in.size_bytes() >= std::size_t{2} << 30;
  const int repeated = repetitions(in.size_bytes());
  const host_memory<complex> made(large ? 0 : expected.size());
  const std::span<complex> out = made.values();
  const auto error = [&] { return difference<T>(out, expected); };

  const auto first_device = [] {
    const cuda::device_scope first(0);
    return cuda::current_device();
  }();
  const staging at(first_device);
  const cuda::device_buffer from(first_device, static_cast<std::int64_t>(in.size_bytes()));
  at.load(from.data(), in.data(), from.bytes());
  const std::span<const In> in_there(static_cast<const In*>(from.data()), in.size());
  std::vector<divided_operands<In>> operands;
  for (const std::vector<int>& each : device_lists()) operands.emplace_back(each, in);
  int failed = 0;
  for (const protection level : {protection::off, protection::correct}) {
    const execution one = where_of({}, level);
    {
      const fft::plan alone(of, one);
      const cuda::device_buffer to(first_device, static_cast<std::int64_t>(expected.size_bytes()));
      const std::span<complex> out_there(static_cast<complex*>(to.data()), expected.size());
      failed += timed(
          token, "forward, in device memory", {}, one, 0, [&] { return alone.forward(in_there, out_there); }, [] { return 0.0; });
      if (level == protection::off) at.store(right.values().data(), to.data(), to.bytes());
      if (!large)
        failed += timed(
            token, "forward", {}, one, bound, [&] { return alone.forward(in, out); }, error, repeated);
    }
    for (divided_operands<In>& each : operands) {
      if (limit.left() < 5) {
        row("skipped").add("cases", 1).add("token", token).print();
        continue;
      }
      const execution where = where_of(each.devices, level);
      failed += divided<T>(token, of, where_of(each.devices, level), each, expected, bound);
      if (large) continue;
      const fft::plan natural(of, where);
      failed += timed(
          token, "forward", each.devices, where, bound, [&] { return natural.forward(in, out); }, error, repeated);
      const fft::group_plan<T> turned(of.shape, where, {.real = real});
      failed += timed(
          token, "forward, transposed", each.devices, where, 0, [&] { return turned.forward(in, out); }, [] { return 0.0; }, repeated);
    }
  }
  return failed;
}

// max ‖A w − Q R w‖ / (‖A‖ ‖w‖) and ‖Qᵀ Q z − z‖ / ‖z‖ for a few random vectors.
template <class T>
double error_of(matrix_view<const T> A, matrix_view<const T> Q, const matrix<T>& R) {
  const std::int64_t m = A.rows, n = A.columns;
  const double size = std::pow(norm_of(std::span(A.data, static_cast<std::size_t>(m * n))), 2);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  double worst = 0;
  for (std::uint64_t probe = 0; probe < 2; ++probe) {
    const std::vector<double> w = numbers<double>(at(n), 2 + probe);
    std::vector<double> r(at(n)), back(at(n));
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i <= j; ++i) r[at(i)] += static_cast<double>(R(i, j)) * w[at(j)];
    std::mutex adding;
    double off = 0, norm = 0, skew = 0;
    work_in_threads(m, [&](std::int64_t first, std::int64_t last) {
      const auto of = [&](std::int64_t i) { return at(i - first); };
      std::vector<double> left(at(last - first)), right(left.size()), q(left.size()), part(at(n));
      for (std::int64_t j = 0; j < n; ++j) {
        for (std::int64_t i = first; i < last; ++i) {
          left[of(i)] += static_cast<double>(A(i, j)) * w[at(j)];
          right[of(i)] += static_cast<double>(Q(i, j)) * r[at(j)];
          q[of(i)] += static_cast<double>(Q(i, j)) * w[at(j)];
        }
      }
      double part_off = 0;
      for (std::size_t i = 0; i < left.size(); ++i) part_off += std::pow(left[i] - right[i], 2);
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = first; i < last; ++i) part[at(j)] += static_cast<double>(Q(i, j)) * q[of(i)];
      const std::lock_guard lock(adding);
      off += part_off;
      for (std::int64_t j = 0; j < n; ++j) back[at(j)] += part[at(j)];
    });
    for (std::int64_t j = 0; j < n; ++j) {
      norm += w[at(j)] * w[at(j)];
      skew += std::pow(back[at(j)] - w[at(j)], 2);
    }
    worst = std::max({worst, std::sqrt(off / (size * norm)), std::sqrt(skew / norm)});
  }
  return worst;
}

// The factorization of rows that lie in the memory of their device: geqrf in place on one device, which is given a fresh copy before each
// call, and qr::factor_rows of parts on several. `R`: of the same devices from host memory, whose bits it must have.
template <class T>
int factor_in_device_memory(const char* token, matrix_view<const T> A, const std::vector<int>& devices, const execution& where,
                            const matrix<T>& R) {
  const auto element = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t shares = std::max<std::int64_t>(static_cast<std::int64_t>(devices.size()), 1);
  std::vector<cuda::device_buffer> memory;
  std::vector<matrix_view<const T>> parts;
  const auto load = [&](cuda::device& on, std::int64_t first, std::int64_t rows) {
    T* const there = static_cast<T*>(memory.back().data());
    on.copy_columns(there, rows * element, &A(first, 0), A.column_stride * element, rows * element, A.columns, nullptr);
    on.synchronize(nullptr);
    return column_major(there, rows, A.columns, rows);
  };
  for (std::int64_t p = 0; p < shares; ++p) {
    const cuda::device_scope on(devices.empty() ? 0 : devices[static_cast<std::size_t>(p)]);
    const std::int64_t first = p * A.rows / shares, rows = (p + 1) * A.rows / shares - first;
    memory.emplace_back(cuda::current_device(), rows * A.columns * element);
    parts.push_back(load(*cuda::current_device(), first, rows));
  }
  const char* const what = "factor, in device memory";
  if (devices.empty()) {
    const cuda::device_scope first(0);
    const auto device = cuda::current_device();
    const std::int64_t bytes = A.rows * A.columns * element;
    const cuda::device_buffer work(device, bytes), tau(device, A.columns * element);
    const matrix_view<T> in_place = column_major(static_cast<T*>(work.data()), A.rows, A.columns, A.rows);
    const qr::plan<T> plan({.rows = A.rows, .columns = A.columns}, where);
    return timed(
        token, what, devices, where, 0,
        [&] { return plan.geqrf(in_place, std::span(static_cast<T*>(tau.data()), static_cast<std::size_t>(A.columns))); },
        [] { return 0.0; },
        [&] {
          device->copy(work.data(), parts[0].data, bytes, nullptr);
          device->synchronize(nullptr);
        });
  }
  qr::row_factors<T> made;
  return timed(
      token, what, devices, where, 0, [&] { return (made = qr::factor_rows(std::span<const matrix_view<const T>>(parts), where)).report; },
      [&] {
        const matrix<T> found = made.r();
        return std::equal(found.data(), found.data() + found.size(), R.data()) ? 0.0 : 1.0;
      },
      [&] { made = {}; });
}

// R and Q: on one device, and on several.
template <class T>
int factor(const char* token, const qr::problem& of, const time_limit& limit) {
  const host_memory<T> A(static_cast<std::size_t>(of.rows * of.columns));
  fill_with_numbers(A.values(), 1);
  const matrix_view<const T> view = column_major(static_cast<const T*>(A.values().data()), of.rows, of.columns, of.rows);
  const int repeated = repetitions(A.values().size_bytes());
  // As in the tests of QR on groups.
  const double bound = 4 * static_cast<double>(of.columns) * k_unit<T>;
  int failed = 0;
  for (const protection level : {protection::off, protection::correct}) {
    std::vector<std::vector<int>> all = {{}};
    for (const std::vector<int>& each : device_lists()) all.push_back(each);
    for (const std::vector<int>& each : all) {
      if (limit.left() < 5) {
        row("skipped").add("cases", 1).add("token", token).print();
        continue;
      }
      const execution where = where_of(each, level);
      qr::factors<T> alone;
      qr::row_factors<T> divided;
      qr::computed<T> Q;
      failed += timed(
          token, "factor", each, where, 0,
          [&] {
            if (each.empty()) return (alone = qr::factor(view, where)).report;
            return (divided = qr::factor_rows(view, where)).report;
          },
          [] { return 0.0; }, repeated);
      failed += timed(
          token, "form Q", each, where, bound,
          [&] {
            Q = each.empty() ? alone.q(where) : divided.q();
            return Q.report;
          },
          [&] { return error_of(view, std::as_const(Q.values).view(), each.empty() ? alone.r() : divided.r()); }, repeated);
      const matrix<T> R = each.empty() ? alone.r() : divided.r();
      divided = {};
      failed += factor_in_device_memory(token, view, each, where, R);
    }
  }
  return failed;
}

// A square matrix in the memory of the first device: geqrf in place on it, given a fresh copy before each call, and qr::factor_columns on
// several, whose factors stay there. Error: ‖A X − B‖ / (‖A‖ ‖X‖) of a system that is solved with the factors.
template <class T>
int factor_square(const char* token, const qr::problem& of, const time_limit& limit) {
  const std::int64_t m = of.rows, n = of.columns, bytes = m * n * static_cast<std::int64_t>(sizeof(T));
  const host_memory<T> words(static_cast<std::size_t>(m * n));
  fill_with_numbers(words.values(), 1);
  const matrix_view<const T> A = column_major(static_cast<const T*>(words.values().data()), m, n, m);
  const auto residual = [&](const matrix<T>& X, const std::vector<double>* less) {
    std::vector<double> y(static_cast<std::size_t>(m));
    work_in_threads(m, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = first; i < last; ++i)
          y[static_cast<std::size_t>(i)] += static_cast<double>(A(i, j)) * static_cast<double>(X(j, 0));
    });
    for (std::size_t i = 0; less != nullptr && i < y.size(); ++i) y[i] -= (*less)[i];
    return y;
  };
  matrix<T> ones(n, 1, order::column_major), B(m, 1, order::column_major);
  std::fill_n(ones.data(), n, T(1));
  const std::vector<double> right = residual(ones, nullptr);
  for (std::int64_t i = 0; i < m; ++i) B(i, 0) = static_cast<T>(right[static_cast<std::size_t>(i)]);
  std::vector<double> rounded(static_cast<std::size_t>(m));
  for (std::int64_t i = 0; i < m; ++i) rounded[static_cast<std::size_t>(i)] = static_cast<double>(B(i, 0));
  const double size = norm_of(std::span<const T>(words.values()));

  const cuda::device_scope first(0);
  const auto device = cuda::current_device();
  const cuda::device_buffer kept(device, bytes);
  staging(device).load(kept.data(), A.data, bytes);
  const matrix_view<const T> there = column_major(static_cast<const T*>(kept.data()), m, n, m);
  std::vector<std::vector<int>> lists = {{}};
  for (const std::vector<int>& each : device_lists()) lists.push_back(each);
  int failed = 0;
  for (const protection level : {protection::off, protection::correct}) {
    for (const std::vector<int>& each : lists) {
      if (limit.left() < 5) {
        row("skipped").add("cases", 1).add("token", token).print();
        continue;
      }
      const execution where = where_of(each, level);
      const char* const what = "factor, in device memory";
      if (each.empty()) {
        const cuda::device_buffer work(device, bytes), tau(device, n * static_cast<std::int64_t>(sizeof(T)));
        const qr::plan<T> plan({.rows = m, .columns = n}, where);
        failed += timed(
            token, what, each, where, 0,
            [&] {
              return plan.geqrf(column_major(static_cast<T*>(work.data()), m, n, m),
                                std::span(static_cast<T*>(tau.data()), static_cast<std::size_t>(n)));
            },
            [] { return 0.0; },
            [&] {
              device->copy(work.data(), kept.data(), bytes, nullptr);
              device->synchronize(nullptr);
            });
        continue;
      }
      qr::column_factors<T> made;
      failed += timed(
          token, what, each, where, 4 * static_cast<double>(n) * k_unit<T>,
          [&] { return (made = qr::factor_columns(there, 512, where)).report; },
          [&] {
            const qr::computed<T> X = made.solve(std::as_const(B).view());
            const std::vector<double> off = residual(X.values, &rounded);
            return norm_of(std::span<const double>(off)) / (size * norm_of(std::span<const T>(X.values.data(), X.values.size())));
          },
          [&] { made = {}; });
    }
  }
  return failed;
}

}  // namespace

int distributed_calls(const settings& wanted, const time_limit& limit) {
  int failed = 0;
  const auto each_of = [&](std::span<const char* const> tokens, const auto& run) {
    for (const char* token : tokens) {
      if (limit.left() < 5)
        row("skipped").add("cases", 1).add("token", token).print();
      else
        failed += run(token);
    }
  };
  const auto matrix_of = [&](const char* token) {
    const qr::problem of = qr::parse_token(token);
    if (of.rows < 16 * of.columns)
      return of.precision == precision::f32 ? factor_square<float>(token, of, limit) : factor_square<double>(token, of, limit);
    return of.precision == precision::f32 ? factor<float>(token, of, limit) : factor<double>(token, of, limit);
  };
  const auto transform_of = [&](const char* token) {
    const fft::problem of = fft::parse_token(token).problem;
    if (of.kind == fft::kind::r2c)
      return of.precision == precision::f32 ? transform<float, float>(token, of, limit) : transform<double, double>(token, of, limit);
    return of.precision == precision::f32 ? transform<float, std::complex<float>>(token, of, limit)
                                          : transform<double, std::complex<double>>(token, of, limit);
  };
  if (!wanted.tokens.empty()) {
    for (const std::string& each : wanted.tokens) {
      const std::array<const char*, 1> one = {each.c_str()};
      if (each.starts_with("qr"))
        each_of(one, matrix_of);
      else
        each_of(one, transform_of);
    }
  } else {
    if (wanted.only != "fft") {
      each_of(wanted.quick ? std::span<const char* const>(k_matrices_quick) : std::span<const char* const>(k_matrices), matrix_of);
      each_of(wanted.quick ? std::span<const char* const>(k_squares_quick) : std::span<const char* const>(k_squares), matrix_of);
    }
    if (wanted.only != "qr")
      each_of(wanted.quick ? std::span<const char* const>(k_transforms_quick) : std::span<const char* const>(k_transforms), transform_of);
  }
  return failed;
}

}  // namespace ballast::gpu_check
