// Compares the FFT with FFTW (planned with MEASURE): out of place, the same data, the same number of threads. On a GPU it compares with
// cuFFT (planned by default and with PATIENT_JIT), with data in device memory and times from events.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <fftw3.h>
#include <fmt/format.h>

#include <ballast/ballast.hpp>

#include "bench.hpp"
#include "cuda/device/cufft.hpp"
#include "gpu.hpp"
#include "stopwatch.hpp"

namespace ballast::bench {
namespace {

// One interface for both precisions of FFTW.
template <class T>
struct fftw;

#define BALLAST_BENCH_FFTW(T, p)                                                                                                  \
  template <>                                                                                                                     \
  struct fftw<T> {                                                                                                                \
    using complex = p##_complex;                                                                                                  \
    using plan = p##_plan;                                                                                                        \
    static void threads(int n) {                                                                                                  \
      static const int ready = p##_init_threads();                                                                                \
      (void)ready;                                                                                                                \
      p##_plan_with_nthreads(n);                                                                                                  \
    }                                                                                                                             \
    static plan c2c(int rank, const int* n, int batch, complex* in, int id, complex* out, int od, int sign) {                     \
      return p##_plan_many_dft(rank, n, batch, in, nullptr, 1, id, out, nullptr, 1, od, sign, FFTW_MEASURE | FFTW_DESTROY_INPUT); \
    }                                                                                                                             \
    static plan r2c(int rank, const int* n, int batch, T* in, int id, complex* out, int od) {                                     \
      return p##_plan_many_dft_r2c(rank, n, batch, in, nullptr, 1, id, out, nullptr, 1, od, FFTW_MEASURE | FFTW_DESTROY_INPUT);   \
    }                                                                                                                             \
    static plan c2r(int rank, const int* n, int batch, complex* in, int id, T* out, int od) {                                     \
      return p##_plan_many_dft_c2r(rank, n, batch, in, nullptr, 1, id, out, nullptr, 1, od, FFTW_MEASURE | FFTW_DESTROY_INPUT);   \
    }                                                                                                                             \
    static void execute(plan made) { p##_execute(made); }                                                                         \
    static void destroy(plan made) { p##_destroy_plan(made); }                                                                    \
  };

BALLAST_BENCH_FFTW(float, fftwf)
BALLAST_BENCH_FFTW(double, fftw)

template <class In, class Out>
struct data {
  std::vector<In> in;
  std::vector<Out> out;
  std::vector<In> destroyed;  // c2r: FFTW's input, which it overwrites; zeros stay numbers however often it is transformed
};

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
  all.made.flops = (problem.kind == fft::kind::c2c ? 5.0 : 2.5) * static_cast<double>(points) * std::log2(static_cast<double>(points)) *
                   static_cast<double>(problem.batch);
  return all;
}

// Starts the transform on the stream of `now`.
template <class In, class Out>
pending_report enqueue(const fft::plan& plan, fft::direction way, std::span<const In> in, std::span<Out> out, const call& now) {
  if constexpr (std::is_floating_point_v<In>) {
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
    gpu::buffer in, out;
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
      buffers{gpu::buffer(bytes), gpu::buffer(out_size * problem.batch * static_cast<std::int64_t>(sizeof(Out)))});
  gpu::copy(held->in.data(), host.data(), bytes);
  gpu::synchronize();
  for (const auto& [level, plan] : plans) {
    const std::size_t ins = host.size(), outs = static_cast<std::size_t>(out_size * problem.batch);
    made.variants.push_back({std::string(to_string(level)), [held, plan = plan, way = wanted.direction, ins, outs] {
                               const std::span<const In> in(static_cast<const In*>(held->in.data()), ins);
                               const std::span<Out> out(static_cast<Out*>(held->out.data()), outs);
                               return gpu::seconds_of([&] { (void)enqueue(*plan, way, in, out, {.stream = gpu::stream()}); });
                             }});
  }
  if (how.peers) {
    for (const bool patient : {false, true}) {
      auto plan = std::make_shared<cuda::cufft_plan>(problem, wanted.direction, patient);
      made.variants.push_back({patient ? "cuFFT, PATIENT_JIT" : "cuFFT", [held, plan] {
                                 return gpu::seconds_of([&] { plan->execute(held->in.data(), held->out.data(), gpu::stream()); });
                               }});
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

  if (how.peers) {  // planned before the data are filled in, because FFTW's MEASURE overwrites the arrays
    std::vector<int> n(problem.shape.begin(), problem.shape.end());
    const int rank = static_cast<int>(n.size());
    const int batch = static_cast<int>(problem.batch);
    fftw<T>::threads(how.threads);
    typename fftw<T>::plan plan;
    if constexpr (std::is_same_v<In, Out>) {
      const int sign = wanted.direction == fft::direction::forward ? FFTW_FORWARD : FFTW_BACKWARD;
      plan = fftw<T>::c2c(rank, n.data(), batch, reinterpret_cast<typename fftw<T>::complex*>(held->in.data()), static_cast<int>(in_size),
                          reinterpret_cast<typename fftw<T>::complex*>(held->out.data()), static_cast<int>(out_size), sign);
    } else if constexpr (std::is_same_v<In, T>) {
      plan = fftw<T>::r2c(rank, n.data(), batch, held->in.data(), static_cast<int>(in_size),
                          reinterpret_cast<typename fftw<T>::complex*>(held->out.data()), static_cast<int>(out_size));
    } else {
      held->destroyed.resize(held->in.size());
      plan = fftw<T>::c2r(rank, n.data(), batch, reinterpret_cast<typename fftw<T>::complex*>(held->destroyed.data()),
                          static_cast<int>(in_size), held->out.data(), static_cast<int>(out_size));
    }
    if (plan == nullptr) throw unsupported_error(fmt::format("{}: FFTW made no plan", made.token));
    const auto destroy = [](auto* p) {
      fftw<T>::destroy(*p);
      delete p;
    };
    std::shared_ptr<typename fftw<T>::plan> shared(new typename fftw<T>::plan(plan), destroy);
    made.variants.push_back({"FFTW", [held, shared] { return seconds_of([&] { fftw<T>::execute(*shared); }); }});
  }
  fill(held->in);
  std::ranges::fill(held->destroyed, In{});
  for (const auto level : {protection::off, protection::correct}) {
    auto plan = std::make_shared<fft::plan>(problem, execution{.backend = how.backend, .threads = how.threads, .protection = level});
    const bool forward = wanted.direction == fft::direction::forward;
    made.variants.push_back({std::string(to_string(level)), [held, plan, forward] {
                               return seconds_of([&] {
                                 if constexpr (!std::is_same_v<Out, T>) {
                                   if (forward) (void)plan->forward(held->in, held->out);
                                 }
                                 if constexpr (!std::is_same_v<In, T>) {
                                   if (!forward) (void)plan->inverse(held->in, held->out);
                                 }
                               });
                             }});
  }
  return made;
}

template <class T>
subject make(const fft::token& wanted, const settings& how) {
  switch (wanted.problem.kind) {
    case fft::kind::c2c: return make<T, std::complex<T>, std::complex<T>>(wanted, how);
    case fft::kind::r2c: return make<T, T, std::complex<T>>(wanted, how);
    default: return make<T, std::complex<T>, T>(wanted, how);
  }
}

}  // namespace

subject make_fft(const std::string& token, const settings& how) {
  const fft::token wanted = fft::parse_token(token);
  return wanted.problem.precision == precision::f32 ? make<float>(wanted, how) : make<double>(wanted, how);
}

}  // namespace ballast::bench
