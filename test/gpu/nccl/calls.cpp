// Calls of a process of the stage `nccl`, beside its device alone.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ballast/fft_group.hpp>
#include <ballast/kmeans.hpp>
#include <ballast/qr_rows.hpp>

#include "../../bench/stopwatch.hpp"
#include "core/counter_rng.hpp"
#include "cuda/device/device.hpp"
#include "distributed.hpp"
#include "group/state.hpp"
#include "kmeans/contract.hpp"
#include "kmeans/kmeans_stages.hpp"
#include "nccl/stage.hpp"
#include "output.hpp"
#include "samples.hpp"

namespace ballast::gpu_check::over_nccl {
namespace {

constexpr int k_repeated = 5;
constexpr const char* k_transforms[] = {"fft_c2c_f32_n256x192x320_b1_fwd",   "fft_c2c_f32_n512x512x512_b1_fwd",
                                        "fft_r2c_f32_n512x512x512_b1_fwd",   "fft_c2c_f64_n512x512x512_b1_fwd",
                                        "fft_c2c_f32_n8192x8192_b1_fwd",     "fft_c2c_f32_n1048576_b1_fwd",
                                        "fft_c2c_f32_n1024x1024x1024_b1_fwd"};
constexpr const char* k_transforms_quick[] = {"fft_c2c_f32_n64x96x128_b1_fwd", "fft_r2c_f64_n64x96x128_b1_fwd",
                                              "fft_c2c_f32_n65536_b1_fwd"};

execution alone_on(const process& own, protection level) { return {.backend = backend::cuda, .device = own.rank, .protection = level}; }
execution on_group(const group& all, protection level) { return {.protection = level, .group = all}; }

template <class T>
int compare(const process& own, const group& all, const compared_fit& what) {
  const kmeans::problem size = kmeans::parse_token(what.token);
  const fit_operands<T> of(what);
  const std::int64_t first = first_row(size.points, own.rank, own.size), end = first_row(size.points, own.rank + 1, own.size);
  const auto points = row_major<const T>(of.points.data(), size.points, size.features);
  const std::span<const T> weights = of.weights;
  const kmeans::data<T> whole{.points = points, .weights = weights};
  kmeans::data<T> part{.points = points.block(first, 0, end - first, size.features)};
  if (what.weighted) part.weights = weights.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first));
  const call now{.throw_on_uncorrectable = false};
  int failed = 0;
  for (const protection level : {protection::correct, protection::off}) {
    kmeans::model<T> alone = kmeans::fit(whole, size.clusters, what.options(), alone_on(own, level), now);
    alone.labels = {alone.labels.begin() + first, alone.labels.begin() + end};
    const kmeans::model<T> made = kmeans::fit(part, size.clusters, what.options(), on_group(all, level), now);
    const bool pass = same_bits(made, alone) && made.report.detected == 0;
    row("nccl fit")
        .add("token", what.token)
        .add("init", kmeans::to_string(what.init))
        .add("weighted", what.weighted)
        .add("rank", own.rank)
        .add("ranks", own.size)
        .add("protection", to_string(level))
        .add("iterations", made.iterations)
        .add("detected", made.report.detected)
        .add("pass", pass)
        .print();
    failed += pass ? 0 : 1;
  }
  return failed;
}

// Milliseconds of an iteration and of a fit of k_many, with the points in device memory.
void time(const process& own, const group& all, const char* token) {
  const kmeans::problem size = kmeans::parse_token(token);
  const cuda::device_scope on(own.rank);
  const std::shared_ptr<cuda::device> device = cuda::current_device();
  std::vector<float> points = clusters::points_of<float>(size, 0, 11);
  const auto bytes = static_cast<std::int64_t>(points.size() * sizeof(float));
  const cuda::device_buffer there(device, bytes);
  device->copy(there.data(), points.data(), bytes, nullptr);
  device->synchronize(nullptr);
  const auto given = row_major<const float>(points.data(), size.clusters, size.features);
  const auto whole = row_major<const float>(static_cast<const float*>(there.data()), size.points, size.features);
  const std::int64_t first = first_row(size.points, own.rank, own.size), end = first_row(size.points, own.rank + 1, own.size);
  for (const bool together : {false, true}) {
    kmeans::problem part = size;
    if (together) part.points = end - first;
    const kmeans::data<float> from{.points = together ? whole.block(first, 0, end - first, size.features) : whole, .centroids = given};
    for (const protection level : {protection::off, protection::correct}) {
      const execution where = together ? on_group(all, level) : alone_on(own, level);
      const auto plan_of = [&](int iterations) {
        return kmeans::plan<float>(part, {.init = kmeans::init::given, .max_iter = iterations, .tol = 0}, where);
      };
      const kmeans::plan<float> few = plan_of(k_few), many = plan_of(k_many);
      int done = 0;
      const auto seconds = [&](const kmeans::plan<float>& plan) {
        all.barrier();
        const bench::stopwatch clock;
        (void)plan.fit(from, {.iterations = &done});
        return clock.seconds();
      };
      (void)seconds(few);
      std::vector<double> iteration, call;
      for (int round = 0; round < k_repeated; ++round) {
        const double shorter = seconds(few), longer = seconds(many);
        if (done > k_few) iteration.push_back(1e3 * (longer - shorter) / (done - k_few));
        call.push_back(1e3 * longer);
      }
      if (own.rank != 0) continue;
      row line("nccl time");
      line.add("token", token).add("ranks", together ? own.size : 1).add("protection", to_string(level)).add("call", median(call));
      if (!iteration.empty())
        line.add("milliseconds", median(iteration))
            .add("low", *std::ranges::min_element(iteration))
            .add("high", *std::ranges::max_element(iteration));
      line.print();
    }
  }
}

// The difference of a rank's part of a spectrum from the whole spectrum of one device, relative to the part. One dimension: element (a, b)
// of the box is X[a + A b].
template <class T>
double difference(const fft::box& part, const std::vector<std::int64_t>& shape, bool one_dimension,
                  const std::vector<std::complex<T>>& made, const std::vector<std::complex<T>>& whole, std::int64_t last_length) {
  const auto [slow, middle, last] = part.order;
  const std::int64_t lines = part.count[slow] * part.count[middle];
  std::vector<double> off(static_cast<std::size_t>(lines)), size(off.size());
  const std::int64_t lengths[] = {shape[0], shape.size() > 1 ? (shape.size() == 2 ? last_length : shape[1]) : 1,
                                  shape.size() > 2 ? last_length : 1};
  work_in_threads(lines, [&, slow = slow, middle = middle, last = last](std::int64_t from, std::int64_t to) {
    for (std::int64_t line = from; line < to; ++line) {
      std::int64_t at[3] = {};
      at[slow] = part.first[slow] + line / part.count[middle];
      at[middle] = part.first[middle] + line % part.count[middle];
      for (std::int64_t e = 0; e < part.count[last]; ++e) {
        at[last] = part.first[last] + e;
        const std::int64_t number = one_dimension ? at[0] + shape[0] * at[1] : (at[0] * lengths[1] + at[1]) * lengths[2] + at[2];
        const std::complex<double> right = whole[static_cast<std::size_t>(number)];
        off[static_cast<std::size_t>(line)] +=
            std::norm(static_cast<std::complex<double>>(made[static_cast<std::size_t>(line * part.count[last] + e)]) - right);
        size[static_cast<std::size_t>(line)] += std::norm(right);
      }
    }
  });
  double all = 0, all_off = 0;
  for (std::size_t i = 0; i < off.size(); ++i) all_off += off[i], all += size[i];
  return std::sqrt(all_off / all);
}

// Prints a row of a transform; each process its own error, the first one the times.
struct timed_transform {
  const char* token;
  const char* order;
  int ranks;
  protection level;
};
void print(const timed_transform& what, const process& own, const std::vector<double>& times, double inside, double error, double limit,
           std::uint64_t detected, bool pass) {
  row line("nccl transform");
  line.add("token", what.token)
      .add("order", what.order)
      .add("rank", own.rank)
      .add("ranks", what.ranks)
      .add("protection", to_string(what.level));
  line.add("milliseconds", median(times)).add("low", *std::ranges::min_element(times)).add("high", *std::ranges::max_element(times));
  if (inside > 0) line.add("inside", inside);
  line.add("error", error).add("limit", limit).add("detected", detected).add("pass", pass).print();
}

template <class T, class In>
int transform(const process& own, const group& all, const char* token, const fft::problem& of) {
  using complex = std::complex<T>;
  const bool real = of.kind == fft::kind::r2c, one_dimension = of.shape.size() == 1;
  const cuda::device_scope on(own.rank);
  const std::shared_ptr<cuda::device> device = cuda::current_device();
  std::int64_t count = 1;
  for (const std::int64_t each : of.shape) count *= each;
  const std::int64_t last_length = real ? of.shape.back() / 2 + 1 : of.shape.back(), results = count / of.shape.back() * last_length;
  std::vector<T> words(static_cast<std::size_t>(count) * sizeof(In) / sizeof(T));
  work_in_threads(static_cast<std::int64_t>(words.size()), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i)
      words[static_cast<std::size_t>(i)] = static_cast<T>(core::random_uniform(1, 0, static_cast<std::uint64_t>(i)) - 0.5);
  });
  const auto bytes_in = count * static_cast<std::int64_t>(sizeof(In)), bytes_out = results * static_cast<std::int64_t>(sizeof(complex));
  const cuda::device_buffer from(device, bytes_in);
  device->copy(from.data(), words.data(), bytes_in, nullptr);
  device->synchronize(nullptr);
  std::vector<complex> expected(static_cast<std::size_t>(results)), made;
  // Two results, each within 4 u √(log₂ N + 1) of the right one.
  const double unit = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53, bound = 8 * unit * std::sqrt(std::log2(static_cast<double>(count)) + 1);
  int failed = 0;
  const auto times_of = [&](const auto& work, std::uint64_t& detected) {
    std::vector<double> times;
    for (int round = 0; round <= k_repeated; ++round) {
      all.barrier();
      const bench::stopwatch clock;
      detected += work().detected;
      if (round > 0) times.push_back(1e3 * clock.seconds());  // the first call loads kernels
    }
    return times;
  };
  for (const protection level : {protection::off, protection::correct}) {
    {
      const fft::plan alone(of, alone_on(own, level));
      const cuda::device_buffer to(device, bytes_out);
      std::uint64_t detected = 0;
      const auto times = times_of(
          [&] {
            return alone.forward(std::span(static_cast<const In*>(from.data()), static_cast<std::size_t>(count)),
                                 std::span(static_cast<complex*>(to.data()), static_cast<std::size_t>(results)));
          },
          detected);
      device->copy(expected.data(), to.data(), bytes_out, nullptr);
      device->synchronize(nullptr);
      if (own.rank == 0) print({token, "natural", 1, level}, own, times, 0, 0, 0, detected, detected == 0);
      failed += detected == 0 ? 0 : 1;
    }
    for (const fft::result_order order : {fft::result_order::transposed, fft::result_order::natural}) {
      const fft::group_plan<T> plan(of.shape, on_group(all, level), {.real = real, .order = order});
      const fft::box part = plan.data(), spectrum = plan.spectrum();
      // Axis 0 alone is divided, so the rank's data are one piece.
      const std::int64_t row_length = count / plan.shape()[0];
      const std::span<const In> in(static_cast<const In*>(from.data()) + part.first[0] * row_length, static_cast<std::size_t>(part.size()));
      made.resize(static_cast<std::size_t>(spectrum.size()));
      const auto part_bytes = static_cast<std::int64_t>(made.size() * sizeof(complex));
      const cuda::device_buffer to(device, std::max<std::int64_t>(part_bytes, 8));
      std::uint64_t detected = 0;
      std::vector<double> inside;
      const auto times = times_of(
          [&] {
            report seen = plan.forward(in, std::span(static_cast<complex*>(to.data()), made.size()));
            inside.push_back(1e3 * all.internal()->seconds.load());
            return seen;
          },
          detected);
      device->copy(made.data(), to.data(), part_bytes, nullptr);
      device->synchronize(nullptr);
      const double error = difference(spectrum, plan.shape(), one_dimension, made, expected, last_length);
      const bool pass = error <= bound && detected == 0;
      const char* const name = order == fft::result_order::natural ? "natural" : "transposed";
      print({token, name, own.size, level}, own, times, one_dimension ? 0 : median(inside), error, bound, detected, pass);
      failed += pass ? 0 : 1;
    }
  }
  return failed;
}

// R and QᵀB of a rank's rows against the normal equations of all rows: ‖RᵀR − AᵀA‖ / ‖A‖² and ‖Rᵀ(QᵀB) − AᵀB‖ / (‖A‖ ‖B‖).
int factor(const process& own, const group& all, const char* token, const qr::problem& of) {
  const std::int64_t m = of.rows, n = of.columns, first = m * own.rank / own.size, count = m * (own.rank + 1) / own.size - first;
  std::vector<double> A(static_cast<std::size_t>(m * n)), B(static_cast<std::size_t>(m));
  work_in_threads(m, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from * n; i < to * n; ++i)
      A[static_cast<std::size_t>(i)] = core::random_uniform(3, 0, static_cast<std::uint64_t>(i)) - 0.5;
    for (std::int64_t i = from; i < to; ++i)
      B[static_cast<std::size_t>(i)] = core::random_uniform(3, 1, static_cast<std::uint64_t>(i)) - 0.5;
  });
  int failed = 0;
  for (const protection level : {protection::off, protection::correct}) {
    execution where = on_group(all, level);
    where.backend = backend::cuda;
    where.device = own.rank;
    std::vector<double> times;
    qr::row_factors<double> factors;
    for (int round = 0; round <= k_repeated; ++round) {
      all.barrier();
      const bench::stopwatch clock;
      factors = qr::factor_rows(row_major<const double>(A.data() + first * n, count, n), where);
      if (round > 0) times.push_back(1e3 * clock.seconds());
    }
    const auto R = factors.r();
    const auto QtB = factors.apply_transposed(row_major<const double>(B.data() + first, count, 1));
    double size = 0, size_b = 0, off = 0, off_b = 0;
    for (const double each : A) size += each * each;
    for (const double each : B) size_b += each * each;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double right = 0, made = 0;
        for (std::int64_t e = 0; e < m; ++e) right += A[static_cast<std::size_t>(e * n + i)] * A[static_cast<std::size_t>(e * n + j)];
        for (std::int64_t e = 0; e <= std::min(i, j); ++e) made += R(e, i) * R(e, j);
        off += (made - right) * (made - right);
      }
      double right = 0, made = 0;
      for (std::int64_t e = 0; e < m; ++e) right += A[static_cast<std::size_t>(e * n + i)] * B[static_cast<std::size_t>(e)];
      for (std::int64_t e = 0; e <= i; ++e) made += R(e, i) * QtB.values(e, 0);
      off_b += (made - right) * (made - right);
    }
    // As in the tests of QR on groups, and the rounding of sums of m terms here.
    const double limit = (8 * static_cast<double>(n) + std::sqrt(static_cast<double>(m))) * 0x1p-53;
    const double error = std::max(std::sqrt(off) / size, std::sqrt(off_b / (size * size_b)));
    const bool pass = error <= limit && factors.report.detected == 0;
    row("nccl qr")
        .add("token", token)
        .add("rank", own.rank)
        .add("ranks", own.size)
        .add("protection", to_string(level))
        .add("milliseconds", median(times))
        .add("error", error)
        .add("limit", limit)
        .add("detected", factors.report.detected)
        .add("pass", pass)
        .print();
    failed += pass ? 0 : 1;
  }
  return failed;
}

}  // namespace

std::int64_t first_row(std::int64_t rows, int rank, int ranks) {
  const std::int64_t unit = kmeans::cuda::rows_of_segment_of(rows), units = (rows + unit - 1) / unit;
  return rank == ranks ? rows : units * rank / ranks * unit;
}

int fits(const process& own, const group& all) {
  int failed = 0;
  for (const compared_fit& each : compared_fits()) {
    const kmeans::problem size = kmeans::parse_token(each.token);
    const std::int64_t unit = kmeans::cuda::rows_of_segment_of(size.points);
    if ((size.points + unit - 1) / unit < own.size) continue;  // fewer segments than ranks
    failed += size.precision == precision::f64 ? compare<double>(own, all, each) : compare<float>(own, all, each);
  }
  return failed;
}

int fit_times(const process& own, const group& all, bool quick) {
  for (const char* each : timed_fits(quick)) time(own, all, each);
  return 0;
}

int transforms(const process& own, const group& all, bool quick) {
  int failed = 0;
  const auto run = [&](const char* token) {
    const fft::problem of = fft::parse_token(token).problem;
    if (of.kind == fft::kind::r2c)
      failed +=
          of.precision == precision::f32 ? transform<float, float>(own, all, token, of) : transform<double, double>(own, all, token, of);
    else
      failed += of.precision == precision::f32 ? transform<float, std::complex<float>>(own, all, token, of)
                                               : transform<double, std::complex<double>>(own, all, token, of);
  };
  if (quick)
    for (const char* each : k_transforms_quick) run(each);
  else
    for (const char* each : k_transforms) run(each);
  return failed;
}

int factorizations(const process& own, const group& all, bool quick) {
  const char* const token = quick ? "qr_f64_m20000_n32" : "qr_f64_m200000_n32";
  return factor(own, all, token, qr::parse_token(token));
}

}  // namespace ballast::gpu_check::over_nccl
