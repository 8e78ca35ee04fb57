// STREAM's copy and the peak of multiply-adds, for the instruction set of this processor.
// Source: J. McCalpin, Memory bandwidth and machine balance in current high performance computers, 1995.
#include "floors.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include <hwy/aligned_allocator.h>
#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "floors.cpp"
#include <hwy/foreach_target.h>
// Highway's header must come after foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Ten independent chains: a multiply-add takes 4 or 5 cycles, and two start in one. Returns the flops.
template <class T>
double multiply_add(std::int64_t rounds, T* sink) {
  const hn::ScalableTag<T> d;
  const auto a = hn::Set(d, static_cast<T>(0.999)), b = hn::Set(d, static_cast<T>(0.001));
  auto x0 = hn::Iota(d, static_cast<T>(0)), x1 = hn::Iota(d, static_cast<T>(1)), x2 = hn::Iota(d, static_cast<T>(2)),
       x3 = hn::Iota(d, static_cast<T>(3)), x4 = hn::Iota(d, static_cast<T>(4)), x5 = hn::Iota(d, static_cast<T>(5)),
       x6 = hn::Iota(d, static_cast<T>(6)), x7 = hn::Iota(d, static_cast<T>(7)), x8 = hn::Iota(d, static_cast<T>(8)),
       x9 = hn::Iota(d, static_cast<T>(9));
  for (std::int64_t i = 0; i < rounds; ++i) {
    x0 = hn::MulAdd(x0, a, b), x1 = hn::MulAdd(x1, a, b), x2 = hn::MulAdd(x2, a, b), x3 = hn::MulAdd(x3, a, b);
    x4 = hn::MulAdd(x4, a, b), x5 = hn::MulAdd(x5, a, b), x6 = hn::MulAdd(x6, a, b), x7 = hn::MulAdd(x7, a, b);
    x8 = hn::MulAdd(x8, a, b), x9 = hn::MulAdd(x9, a, b);
  }
  x0 = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(hn::Add(x4, x5), hn::Add(hn::Add(x6, x7), hn::Add(x8, x9))));
  *sink = hn::GetLane(hn::SumOfLanes(d, x0));
  return 20.0 * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}
double multiply_add_f32(std::int64_t rounds) {
  [[maybe_unused]] volatile float kept = 0;
  float sink = 0;
  const double flops = multiply_add<float>(rounds, &sink);
  kept = sink;
  return flops;
}
double multiply_add_f64(std::int64_t rounds) {
  [[maybe_unused]] volatile double kept = 0;
  double sink = 0;
  const double flops = multiply_add<double>(rounds, &sink);
  kept = sink;
  return flops;
}

// `count` is a multiple of eight vectors of any target.
void copy(const float* from, float* to, std::int64_t count, bool past_cache) {
  const hn::ScalableTag<float> d;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += 4 * width) {
    for (std::int64_t j = i; j < i + 4 * width; j += width) {
      if (past_cache)
        hn::Stream(hn::Load(d, from + j), d, to + j);
      else
        hn::Store(hn::Load(d, from + j), d, to + j);
    }
  }
  hwy::FlushStream();
}

}  // namespace ballast::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::bench {
namespace {

HWY_EXPORT(multiply_add_f32);
HWY_EXPORT(multiply_add_f64);
HWY_EXPORT(copy);

constexpr std::size_t k_repeats = 5;
constexpr std::int64_t k_piece = 1024;  // numbers: the part of each thread is a multiple

// Returns the least seconds of `work(thread)` on all threads at once: from the first begin to the last end, as the threads see them.
double together(int threads, const std::function<void(int)>& work) {
  using clock = std::chrono::steady_clock;
  struct span {
    clock::time_point begin, end;
  };
  std::vector<std::array<span, k_repeats>> seen(static_cast<std::size_t>(threads));
  std::barrier begin(threads);
  {
    std::vector<std::jthread> all;
    for (int t = 0; t < threads; ++t) {
      all.emplace_back([&, t] {
        for (span& each : seen[static_cast<std::size_t>(t)]) {
          begin.arrive_and_wait();
          each.begin = clock::now();
          work(t);
          each.end = clock::now();
        }
      });
    }
  }
  double least = HUGE_VAL;
  for (std::size_t i = 0; i < k_repeats; ++i) {
    span whole = seen.front()[i];
    for (const auto& each : seen) {
      whole.begin = std::min(whole.begin, each[i].begin);
      whole.end = std::max(whole.end, each[i].end);
    }
    least = std::min(least, std::chrono::duration<double>(whole.end - whole.begin).count());
  }
  return least;
}

double peak(int threads, double (*run)(std::int64_t)) {
  const double flops = run(1 << 20);
  return threads * flops / together(threads, [&](int) { run(1 << 20); });
}

double copied_per_second(int threads, std::int64_t bytes) {
  const std::int64_t count = std::max<std::int64_t>(1, bytes / 8 / threads / k_piece) * k_piece;  // numbers of one thread
  const std::int64_t repeats = std::max<std::int64_t>(1, (std::int64_t{1} << 24) / count);
  std::vector<hwy::AlignedFreeUniquePtr<float[]>> from, to;
  for (int t = 0; t < threads; ++t) {
    from.push_back(hwy::AllocateAligned<float>(static_cast<std::size_t>(count)));
    to.push_back(hwy::AllocateAligned<float>(static_cast<std::size_t>(count)));
    std::fill_n(from.back().get(), count, 1.0F);
    std::fill_n(to.back().get(), count, 0.0F);
  }
  double best = 0;
  for (const bool past_cache : {false, true}) {
    const double seconds = together(threads, [&](int t) {
      const auto at = static_cast<std::size_t>(t);
      for (std::int64_t i = 0; i < repeats; ++i) HWY_DYNAMIC_DISPATCH(copy)(from[at].get(), to[at].get(), count, past_cache);
    });
    best = std::max(best, static_cast<double>(threads * repeats * count * 8) / seconds);
  }
  return best;
}

}  // namespace

floors measure_floors(int threads) {
  floors made;
  for (std::int64_t bytes = std::int64_t{1} << 15; bytes <= std::int64_t{1} << 28; bytes *= 2)
    made.copies.push_back({bytes, copied_per_second(threads, bytes)});
  made.f32_flops = peak(threads, HWY_DYNAMIC_DISPATCH(multiply_add_f32));
  made.f64_flops = peak(threads, HWY_DYNAMIC_DISPATCH(multiply_add_f64));
  return made;
}

double floors::seconds(double flops, std::int64_t bytes, precision type) const {
  const auto found = std::ranges::find_if(copies, [&](const copy& each) { return each.bytes >= bytes; });
  const double per_second = found == copies.end() ? copies.back().per_second : found->per_second;
  return std::max(flops / (type == precision::f32 ? f32_flops : f64_flops), static_cast<double>(bytes) / per_second);
}

}  // namespace ballast::bench
#endif
