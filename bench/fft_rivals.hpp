// The rivals of transforms on processors: FFTW with MEASURE and MKL in this process, DUCC and pocketfft in one of Python.
// Layer: tools.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fftw3.h>
#include <fmt/format.h>

#include <ballast/ballast.hpp>

#include "bench.hpp"
#include "child.hpp"
#include "mkl.hpp"
#include "stopwatch.hpp"

namespace ballast::bench {

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
    static plan r2r(int rank, const int* n, int batch, T* in, T* out, int distance, const fftw_r2r_kind* kinds) {                 \
      return p##_plan_many_r2r(rank, n, batch, in, nullptr, 1, distance, out, nullptr, 1, distance, kinds,                        \
                               FFTW_MEASURE | FFTW_DESTROY_INPUT);                                                                \
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
  std::vector<In> destroyed;  // FFTW's input, which it may overwrite
};

// FFTW's name of a kind or of its inverse.
inline fftw_r2r_kind fftw_kind(fft::real_kind what, fft::direction way) {
  static constexpr fftw_r2r_kind all[] = {FFTW_R2HC,    FFTW_HC2R,    FFTW_DHT,     FFTW_REDFT00, FFTW_REDFT10, FFTW_REDFT01,
                                          FFTW_REDFT11, FFTW_RODFT00, FFTW_RODFT10, FFTW_RODFT01, FFTW_RODFT11};
  return all[static_cast<std::size_t>(way == fft::direction::forward ? what : fft::inverse_of(what))];
}

template <class T>
struct scalar_of {
  using type = T;
};
template <class T>
struct scalar_of<std::complex<T>> {
  using type = T;
};

// Plans with MEASURE: it overwrites FFTW's input and the output.
template <class In, class Out>
void add_fftw(subject& made, const fft::token& wanted, const settings& how, const std::shared_ptr<data<In, Out>>& held) {
  using T = typename scalar_of<In>::type;
  using complex = typename fftw<T>::complex;
  const fft::problem& problem = wanted.problem;
  const std::vector<int> n(problem.shape.begin(), problem.shape.end());
  const int rank = static_cast<int>(n.size());
  const int batch = static_cast<int>(problem.batch);
  const int in_size = static_cast<int>(held->in.size()) / batch, out_size = static_cast<int>(held->out.size()) / batch;
  fftw<T>::threads(how.threads);
  held->destroyed.resize(held->in.size());
  In* const in = held->destroyed.data();
  typename fftw<T>::plan plan;
  if constexpr (std::is_same_v<In, T> && std::is_same_v<Out, T>) {
    std::vector<fftw_r2r_kind> kinds;
    for (std::size_t axis = 0; axis < n.size(); ++axis) kinds.push_back(fftw_kind(problem.real_kinds[axis], wanted.direction));
    plan = fftw<T>::r2r(rank, n.data(), batch, in, held->out.data(), in_size, kinds.data());
  } else if constexpr (std::is_same_v<In, Out>) {
    const int sign = wanted.direction == fft::direction::forward ? FFTW_FORWARD : FFTW_BACKWARD;
    plan = fftw<T>::c2c(rank, n.data(), batch, reinterpret_cast<complex*>(in), in_size, reinterpret_cast<complex*>(held->out.data()),
                        out_size, sign);
  } else if constexpr (std::is_same_v<In, T>) {
    plan = fftw<T>::r2c(rank, n.data(), batch, in, in_size, reinterpret_cast<complex*>(held->out.data()), out_size);
  } else {
    plan = fftw<T>::c2r(rank, n.data(), batch, reinterpret_cast<complex*>(in), in_size, held->out.data(), out_size);
  }
  if (plan == nullptr) throw unsupported_error(fmt::format("{}: FFTW made no plan", made.token));
  const auto destroy = [](auto* p) {
    fftw<T>::destroy(*p);
    delete p;
  };
  std::shared_ptr<typename fftw<T>::plan> shared(new typename fftw<T>::plan(plan), destroy);
  made.variants.push_back({"FFTW", [held, shared] { return seconds_of([&] { fftw<T>::execute(*shared); }); }});
}

// The path of MKL in an environment of Python; empty if there is none.
inline std::string mkl_in(const std::string& folder) {
  if (folder.empty()) return "";
  std::error_code ignored;
  for (const auto& each : std::filesystem::directory_iterator(folder + "/lib", ignored)) {
    if (each.path().filename().string().starts_with("libmkl_rt.so")) return each.path().string();
  }
  return "";
}

// Adds MKL, whose result is compared with Ballast's, and DUCC and pocketfft, which compare theirs with NumPy's. `missing` gets the reason
// for each rival that is not there or has no such transform.
template <class In, class Out>
void add_others(subject& made, const fft::token& wanted, const settings& how, const std::shared_ptr<data<In, Out>>& held) {
  const fft::problem& problem = wanted.problem;
  try {
    auto plan = std::make_shared<mkl_plan>(mkl_in(how.rivals), problem, wanted.direction, how.threads);
    for (const variant& each : made.variants) {
      if (each.name == "correct") (void)each.run();
    }
    const std::vector<Out> expected = held->out;
    plan->execute(held->in.data(), held->out.data());
    double norm = 0, apart = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      norm += std::norm(expected[i]);
      apart += std::norm(expected[i] - held->out[i]);
    }
    if (!(std::sqrt(apart / norm) <= (problem.precision == precision::f32 ? 1e-4 : 1e-10)))
      throw error(fmt::format("{}: MKL gave another result, apart by {:.2g} of its norm", made.token, std::sqrt(apart / norm)));
    made.variants.push_back({"MKL", [held, plan] { return seconds_of([&] { plan->execute(held->in.data(), held->out.data()); }); }});
  } catch (const unsupported_error& why) {
    made.missing["MKL"] = why.what();
  }
  std::string shape;
  for (const auto length : problem.shape) shape += (shape.empty() ? "" : "x") + std::to_string(length);
  std::string kind(fft::to_string(problem.kind));
  if (problem.kind == fft::kind::r2r) {
    const fft::real_kind first = problem.real_kinds.front();
    kind = fft::to_string(wanted.direction == fft::direction::forward ? first : fft::inverse_of(first));
  }
  for (const auto& [name, word] : {std::pair{"DUCC", "ducc"}, std::pair{"pocketfft", "pocketfft"}}) {
    const std::string python = how.rivals + "/bin/python";
    if (how.rivals.empty() || !std::filesystem::exists(python)) {
      made.missing[name] = how.rivals.empty() ? "no folder of rivals was given" : python + " does not exist";
      continue;
    }
    if (problem.kind == fft::kind::r2r && !kind.starts_with("dct") && !kind.starts_with("dst")) {
      made.missing[name] = kind + " is not compared";
      continue;
    }
    auto rival = std::make_shared<child>(
        std::vector<std::string>{python, how.scripts + "/fourier.py", word, problem.precision == precision::f32 ? "float32" : "float64",
                                 kind, shape, std::to_string(problem.batch), std::string(fft::to_string(wanted.direction)),
                                 std::to_string(how.threads)},
        name);
    try {
      (void)rival->ask();
      made.variants.push_back({name, [rival] { return rival->ask(); }});
    } catch (const error& why) {
      made.missing[name] = why.what();
    }
  }
}

}  // namespace ballast::bench
