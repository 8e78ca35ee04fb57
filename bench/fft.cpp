// Compares the FFT with FFTW (planned with MEASURE), MKL, DUCC and pocketfft: out of place, the same number of threads. On a GPU it
// compares with cuFFT (planned by default and with PATIENT_JIT), with data in device memory and times from events.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include <ballast/ballast.hpp>

#include "bench.hpp"
#include "cuda/device/cufft.hpp"
#include "fft_rivals.hpp"
#include "gpu.hpp"
#include "stopwatch.hpp"

namespace ballast::bench {
namespace {

void fill(std::vector<float>& x) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto& each : x) each = normal(random);
}
void fill(std::vector<double>& x) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (auto& each : x) each = normal(random);
}
template <class T>
void fill(std::vector<std::complex<T>>& x) {
  std::mt19937 random(1);
  std::normal_distribution<T> normal;
  for (auto& each : x) each = {normal(random), normal(random)};
}

// The sizes of one signal, and a subject without variants.
struct frame {
  std::int64_t in_size = 0, out_size = 0;  // elements of one signal
  subject made;
};

frame make_frame(const fft::token& wanted) {
  const fft::problem& problem = wanted.problem;
  std::int64_t points = 1;
  for (const auto length : problem.shape) points *= length;
  const std::int64_t half = points / problem.shape.back() * (problem.shape.back() / 2 + 1);
  frame all;
  all.in_size = problem.kind == fft::kind::c2r ? half : points;
  all.out_size = problem.kind == fft::kind::r2c ? half : points;
  all.made.token = fft::to_token(problem, wanted.direction);
  all.made.unit = "batch";
  const std::int64_t scalar = problem.precision == precision::f32 ? 4 : 8;
  all.made.bytes = problem.batch * scalar *
                   (all.in_size * (problem.kind == fft::kind::c2c || problem.kind == fft::kind::c2r ? 2 : 1) +
                    all.out_size * (problem.kind == fft::kind::c2c || problem.kind == fft::kind::r2c ? 2 : 1));
  all.made.type = problem.precision;
  all.made.flops = (problem.kind == fft::kind::c2c ? 5.0 : 2.5) * static_cast<double>(points) * std::log2(static_cast<double>(points)) *
                   static_cast<double>(problem.batch);
  return all;
}

// Starts the transform on the stream of `now`.
template <class In, class Out>
pending_report enqueue(const fft::plan& plan, fft::direction way, std::span<const In> in, std::span<Out> out, const call& now) {
  if constexpr (std::is_floating_point_v<In> && std::is_floating_point_v<Out>) {
    return way == fft::direction::forward ? plan.enqueue_forward(in, out, now) : plan.enqueue_inverse(in, out, now);
  } else if constexpr (std::is_floating_point_v<In>) {
    return plan.enqueue_forward(in, out, now);
  } else if constexpr (std::is_floating_point_v<Out>) {
    return plan.enqueue_inverse(in, out, now);
  } else {
    return way == fft::direction::forward ? plan.enqueue_forward(in, out, now) : plan.enqueue_inverse(in, out, now);
  }
}

// Benchmarks on the first GPU, out of place: data in device memory, all variants on one stream, times from events.
template <class In, class Out>
subject make_on_gpu(const fft::token& wanted, const settings& how) {
  const fft::problem& problem = wanted.problem;
  auto [in_size, out_size, made] = make_frame(wanted);
  struct buffers {
    gpu::buffer in, out, destroyed;  // the last one: cuFFT's input if it overwrites it, as it does for c2r
  };
  // Constructs the plans first: without a GPU, their error message gives the reason.
  std::vector<std::pair<protection, std::shared_ptr<fft::plan>>> plans;
  for (const auto level : {protection::off, protection::correct}) {
    if (gpu::why_none().empty()) gpu::open();
    plans.emplace_back(level, std::make_shared<fft::plan>(problem, execution{.backend = backend::cuda, .protection = level}));
  }
  std::vector<In> host(static_cast<std::size_t>(in_size * problem.batch));
  fill(host);
  const auto bytes = static_cast<std::int64_t>(host.size() * sizeof(In));
  auto held = std::make_shared<buffers>(
      buffers{gpu::buffer(bytes), gpu::buffer(out_size * problem.batch * static_cast<std::int64_t>(sizeof(Out))), gpu::buffer()});
  gpu::copy(held->in.data(), host.data(), bytes);
  if (problem.kind == fft::kind::c2r) {
    held->destroyed = gpu::buffer(bytes);
    gpu::copy(held->destroyed.data(), host.data(), bytes);
  }
  gpu::synchronize();
  for (const auto& [level, plan] : plans) {
    const std::size_t ins = host.size(), outs = static_cast<std::size_t>(out_size * problem.batch);
    made.variants.push_back({std::string(to_string(level)), [held, plan = plan, way = wanted.direction, ins, outs] {
                               const std::span<const In> in(static_cast<const In*>(held->in.data()), ins);
                               const std::span<Out> out(static_cast<Out*>(held->out.data()), outs);
                               return gpu::seconds_of([&] { (void)enqueue(*plan, way, in, out, {.stream = gpu::stream()}); });
                             }});
  }
  if (how.peers && problem.kind != fft::kind::r2r) {
    for (const bool patient : {false, true}) {
      auto plan = std::make_shared<cuda::cufft_plan>(problem, wanted.direction, patient);
      const void* const in = problem.kind == fft::kind::c2r ? held->destroyed.data() : held->in.data();
      made.variants.push_back({patient ? "cuFFT, PATIENT_JIT" : "cuFFT",
                               [held, plan, in] { return gpu::seconds_of([&] { plan->execute(in, held->out.data(), gpu::stream()); }); }});
    }
  }
  return made;
}

template <class T, class In, class Out>
subject make(const fft::token& wanted, const settings& how) {
  const fft::problem& problem = wanted.problem;
  if (how.backend == backend::cuda || (how.backend == backend::automatic && information().backends.front() == backend::cuda))
    return make_on_gpu<In, Out>(wanted, how);
  auto [in_size, out_size, made] = make_frame(wanted);
  auto held = std::make_shared<data<In, Out>>();
  held->in.resize(static_cast<std::size_t>(in_size * problem.batch));
  held->out.resize(static_cast<std::size_t>(out_size * problem.batch));

  if (how.peers) add_fftw(made, wanted, how, held);  // planned before the data are filled in, because FFTW's MEASURE overwrites arrays
  if constexpr (!std::is_same_v<In, T> && std::is_same_v<Out, T>) {
    // A spectrum of reals: what libraries make of another one differs.
    std::vector<T> reals(held->out.size());
    fill(reals);
    fft::problem back = problem;
    back.kind = fft::kind::r2c;
    (void)fft::plan(back, {.backend = how.backend, .threads = how.threads, .protection = protection::off}).forward(reals, held->in);
  } else {
    fill(held->in);
  }
  // FFTW overwrites its spectra of reals: zeros stay numbers however often they are transformed.
  if (problem.kind == fft::kind::c2r) {
    std::ranges::fill(held->destroyed, In{});
  } else if (how.peers) {
    held->destroyed = held->in;
  }
  for (const auto level : {protection::off, protection::correct}) {
    auto plan = std::make_shared<fft::plan>(problem, execution{.backend = how.backend, .threads = how.threads, .protection = level});
    const bool forward = wanted.direction == fft::direction::forward;
    made.variants.push_back({std::string(to_string(level)), [held, plan, forward] {
                               return seconds_of([&] {
                                 if constexpr (!std::is_same_v<Out, T> || std::is_same_v<In, Out>) {
                                   if (forward) (void)plan->forward(held->in, held->out);
                                 }
                                 if constexpr (!std::is_same_v<In, T> || std::is_same_v<In, Out>) {
                                   if (!forward) (void)plan->inverse(held->in, held->out);
                                 }
                               });
                             }});
  }
  if (how.peers) add_others(made, wanted, how, held);
  return made;
}

template <class T>
subject make(const fft::token& wanted, const settings& how) {
  switch (wanted.problem.kind) {
    case fft::kind::c2c: return make<T, std::complex<T>, std::complex<T>>(wanted, how);
    case fft::kind::r2c: return make<T, T, std::complex<T>>(wanted, how);
    case fft::kind::r2r: return make<T, T, T>(wanted, how);
    default: return make<T, std::complex<T>, T>(wanted, how);
  }
}

}  // namespace

subject make_fft(const std::string& token, const settings& how) {
  const fft::token wanted = fft::parse_token(token);
  return wanted.problem.precision == precision::f32 ? make<float>(wanted, how) : make<double>(wanted, how);
}

}  // namespace ballast::bench
