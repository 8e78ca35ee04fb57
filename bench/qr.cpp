// QR against LAPACK's xGEQRF in OpenBLAS: the same library that Ballast takes its BLAS from, with its own threads.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <ballast/ballast.hpp>

#include "bench.hpp"
#include "stopwatch.hpp"

extern "C" {
void sgeqrf_(const int*, const int*, float*, const int*, float*, float*, const int*, int*);
void dgeqrf_(const int*, const int*, double*, const int*, double*, double*, const int*, int*);
void openblas_set_num_threads(int);
}

namespace ballast::bench {
namespace {

void geqrf(int m, int n, float* A, float* tau, float* work, int lwork, int* info) { sgeqrf_(&m, &n, A, &m, tau, work, &lwork, info); }
void geqrf(int m, int n, double* A, double* tau, double* work, int lwork, int* info) { dgeqrf_(&m, &n, A, &m, tau, work, &lwork, info); }

template <class T>
struct data {
  matrix<T> original, work;
  std::vector<T> tau, lapack_work;
};

template <class T>
subject make(const qr::problem& wanted, const settings& how) {
  auto held = std::make_shared<data<T>>();
  held->original = matrix<T>(wanted.m, wanted.n, order::column_major);
  held->work = held->original;
  held->tau.resize(static_cast<std::size_t>(std::min(wanted.m, wanted.n)));
  std::mt19937 random(1);
  std::normal_distribution<T> normal;
  for (std::size_t i = 0; i < held->original.size(); ++i) held->original.data()[i] = normal(random);

  subject made;
  made.token = qr::to_token(wanted);
  made.unit = "factorization";
  const double m = static_cast<double>(wanted.m), n = static_cast<double>(wanted.n);
  made.flops = m >= n ? 2 * n * n * (m - n / 3) : 2 * m * m * (n - m / 3);
  for (const auto level : {protection::off, protection::correct}) {
    made.variants.push_back({std::string(to_string(level)), [=] {
                               held->work = held->original;
                               return seconds_of([&] {
                                 (void)qr::geqrf(held->work.view(), held->tau,
                                                 {.backend = how.backend, .threads = how.threads, .protection = level});
                               });
                             }});
  }
  if (how.peers) {
    const int im = static_cast<int>(wanted.m), in = static_cast<int>(wanted.n);
    int info = 0;
    T size = 0;
    geqrf(im, in, held->work.data(), held->tau.data(), &size, -1, &info);
    held->lapack_work.resize(static_cast<std::size_t>(size));
    made.variants.push_back({"OpenBLAS", [=] {
                               held->work = held->original;
                               openblas_set_num_threads(how.threads);
                               int status = 0;
                               return seconds_of([&] {
                                 geqrf(im, in, held->work.data(), held->tau.data(), held->lapack_work.data(),
                                       static_cast<int>(held->lapack_work.size()), &status);
                               });
                             }});
  }
  return made;
}

}  // namespace

subject make_qr(const std::string& token, const settings& how) {
  const qr::problem wanted = qr::parse_token(token);
  return wanted.precision == precision::f32 ? make<float>(wanted, how) : make<double>(wanted, how);
}

}  // namespace ballast::bench
