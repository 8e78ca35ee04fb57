// The stage `distributed`: several devices of one process. It compares every bit of K-Means with a call on one device, and times iterations
// and whole calls on one device and on all; the file distributed_calls.cpp has QR and transforms. It injects no faults.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ballast/kmeans.hpp>

#include "../../bench/gpu.hpp"
#include "../../bench/stopwatch.hpp"
#include "algorithm.hpp"
#include "distributed.hpp"
#include "kmeans/kmeans_stages.hpp"
#include "output.hpp"
#include "samples.hpp"

namespace ballast::gpu_check {
namespace {

using kmeans::model;

constexpr compared_fit k_compared[] = {
    {"kmeans_f32_m131072_n128_k128", kmeans::init::kmeans_plus_plus, false, 0},
    {"kmeans_f32_m20001_n17_k33", kmeans::init::kmeans_plus_plus, false, 0},
    {"kmeans_f32_m131072_n8_k8", kmeans::init::kmeans_parallel, false, 0},
    {"kmeans_f32_m16384_n256_k1024", kmeans::init::random, false, 0},
    {"kmeans_f32_m5000_n3_k7", kmeans::init::kmeans_plus_plus, false, 1e30},
    {"kmeans_f64_m10001_n17_k33", kmeans::init::kmeans_plus_plus, false, 0},
    {"kmeans_f64_m65536_n128_k128", kmeans::init::random, false, 0},
    {"kmeans_f32_m1500_n5_k7", kmeans::init::kmeans_plus_plus, true, 0},
    {"kmeans_f64_m1500_n5_k7", kmeans::init::kmeans_plus_plus, true, 0},
};
constexpr const char* k_timed[] = {"kmeans_f32_m4194304_n128_k1000", "kmeans_f32_m10485760_n32_k64", "kmeans_f32_m1048576_n16_k64"};
constexpr const char* k_timed_quick[] = {"kmeans_f32_m131072_n128_k128"};
constexpr int k_rounds = 3;

}  // namespace

std::span<const compared_fit> compared_fits() { return k_compared; }

template <class T>
fit_operands<T>::fit_operands(const compared_fit& what) {
  const kmeans::problem size = kmeans::parse_token(what.token);
  points = clusters::points_of<T>(size, size.clusters, 7);
  if (what.largest != 0) points[static_cast<std::size_t>(size.features) * 11] = static_cast<T>(what.largest);
  for (std::int64_t i = 0; what.weighted && i < size.points; ++i)
    weights.push_back(i % 13 == 0 ? T(0) : T(1) + static_cast<T>(i % 7) / T(8));
}
template struct fit_operands<float>;
template struct fit_operands<double>;

std::span<const char* const> timed_fits(bool quick) {
  if (quick) return k_timed_quick;
  return k_timed;
}

std::vector<std::vector<int>> device_lists() {
  const int count = std::max(bench::gpu::devices(), 1);
  std::vector<int> all(static_cast<std::size_t>(std::max(count, 2)), 0);
  if (count > 1) std::iota(all.begin(), all.end(), 0);
  return {{0}, all};
}

std::string text_of(const std::vector<int>& devices) {
  std::string made;
  for (const int each : devices) made += (made.empty() ? "" : ",") + std::to_string(each);
  return made;
}

void work_in_threads(std::int64_t count, const std::function<void(std::int64_t first, std::int64_t last)>& work) {
  const auto threads = static_cast<std::int64_t>(std::clamp(std::thread::hardware_concurrency() / 2, 1U, 32U));
  std::vector<std::thread> all;
  for (std::int64_t t = 0; t < threads; ++t) all.emplace_back([&, t] { work(count * t / threads, count * (t + 1) / threads); });
  for (std::thread& each : all) each.join();
}

execution where_of(const std::vector<int>& devices, protection level) {
  execution made{.backend = backend::cuda, .protection = level};
  if (devices.empty()) {
    made.device = 0;
  } else {
    made.group = group::devices(devices);
  }
  return made;
}

namespace {

template <class T>
int compare(const compared_fit& what) {
  const kmeans::problem size = kmeans::parse_token(what.token);
  const fit_operands<T> of(what);
  const kmeans::data<T> from{.points = row_major<const T>(of.points.data(), size.points, size.features), .weights = of.weights};
  const kmeans::options how = what.options();
  const call now{.throw_on_uncorrectable = false};
  int failed = 0;
  for (const protection level : {protection::correct, protection::off}) {
    const model<T> alone = kmeans::fit(from, size.clusters, how, where_of({}, level), now);
    for (const std::vector<int>& each : device_lists()) {
      row line("distributed");
      line.add("token", what.token).add("init", kmeans::to_string(what.init)).add("weighted", what.weighted);
      line.add("devices", text_of(each)).add("protection", to_string(level));
      try {
        const model<T> made = kmeans::fit(from, size.clusters, how, where_of(each, level), now);
        const bool pass = same_bits(made, alone) && made.report.detected == 0;
        line.add("iterations", made.iterations).add("detected", made.report.detected).add("pass", pass);
        failed += pass ? 0 : 1;
      } catch (const std::exception& thrown) {
        line.add("pass", false).add("wrong", thrown.what());
        ++failed;
      }
      line.print();
    }
  }
  return failed;
}

// Times iterations, by two fits of different length, and the longer one as a whole, with the points in pageable memory of the host.
void time(const char* token, const time_limit& limit) {
  const kmeans::problem size = kmeans::parse_token(token);
  const std::vector<float> points = clusters::points_of<float>(size, 0, 11);
  const auto view = row_major<const float>(points.data(), size.points, size.features);
  const kmeans::data<float> from{.points = view, .centroids = row_major<const float>(points.data(), size.clusters, size.features)};
  std::vector<std::vector<int>> all = {{}};
  for (const std::vector<int>& each : device_lists()) all.push_back(each);
  for (const std::vector<int>& each : all) {
    for (const protection level : {protection::off, protection::correct}) {
      if (limit.left() < 5) {
        row("skipped").add("cases", 1).add("token", token).print();
        continue;
      }
      const auto plan_of = [&](int iterations) {
        return kmeans::plan<float>(size, {.init = kmeans::init::given, .max_iter = iterations, .tol = 0}, where_of(each, level));
      };
      const kmeans::plan<float> few = plan_of(k_few), many = plan_of(k_many);
      int done = 0;
      const auto seconds = [&](const kmeans::plan<float>& plan) {
        const bench::stopwatch clock;
        (void)plan.fit(from, {.iterations = &done});
        return clock.seconds();
      };
      (void)seconds(few);
      std::vector<double> iteration, whole;
      for (int round = 0; round < k_rounds && (round == 0 || limit.left() > 5); ++round) {
        const double shorter = seconds(few), longer = seconds(many);
        if (done > k_few) iteration.push_back(1e3 * (longer - shorter) / (done - k_few));  // a fit may end before its last iteration
        whole.push_back(1e3 * longer);
      }
      row line("distributed time");
      line.add("token", token).add("devices", text_of(each)).add("protection", to_string(level)).add("call", median(whole));
      if (!iteration.empty())
        line.add("milliseconds", median(iteration))
            .add("low", *std::ranges::min_element(iteration))
            .add("high", *std::ranges::max_element(iteration));
      line.print();
    }
  }
}

}  // namespace

int distributed(const settings& wanted, const time_limit& limit) {
  row("devices").add("count", bench::gpu::devices()).print();
  if (!wanted.tokens.empty() || wanted.only == "qr" || wanted.only == "fft") return distributed_calls(wanted, limit);
  int failed = 0;
  for (const compared_fit& each : k_compared) {
    if (limit.left() < 5) {
      row("skipped").add("cases", 1).add("token", each.token).print();
      continue;
    }
    const bool f64 = kmeans::parse_token(each.token).precision == precision::f64;
    failed += f64 ? compare<double>(each) : compare<float>(each);
  }
  for (const char* each : timed_fits(wanted.quick)) time(each, limit);
  failed += distributed_calls(wanted, limit);
  return failed;
}

}  // namespace ballast::gpu_check
