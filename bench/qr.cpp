// Compares QR with LAPACK's xGEQRF in OpenBLAS: the library that also provides Ballast's BLAS, here with its own threads.
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
  // The matrices of a batch are stored contiguously, as the columns of one matrix.
  const std::int64_t count = wanted.batch, rank = std::min(wanted.rows, wanted.columns);
  held->original = matrix<T>(wanted.rows, wanted.columns * count, order::column_major);
  held->work = held->original;
  held->tau.resize(static_cast<std::size_t>(rank * count));
  std::mt19937 random(1);
  std::normal_distribution<T> normal;
  for (std::size_t i = 0; i < held->original.size(); ++i) held->original.data()[i] = normal(random);

  subject made;
  made.token = qr::to_token(wanted);
  made.unit = count > 1 ? "batch" : "factorization";
  const double m = static_cast<double>(wanted.rows), n = static_cast<double>(wanted.columns);
  made.flops = static_cast<double>(count) * (m >= n ? 2 * n * n * (m - n / 3) : 2 * m * m * (n - m / 3));
  for (const auto level : {protection::off, protection::correct}) {
    const qr::plan<T> plan(wanted, {.backend = how.backend, .threads = how.threads, .protection = level});
    made.variants.push_back({std::string(to_string(level)), [=] {
                               held->work = held->original;
                               return seconds_of([&] {
                                 if (count > 1) {
                                   (void)plan.geqrf(batch_of(column_major(held->work.data(), wanted.rows, wanted.columns), count),
                                                    held->tau);
                                 } else {
                                   (void)plan.geqrf(held->work.view(), held->tau);
                                 }
                               });
                             }});
  }
  if (how.peers) {
    const int im = static_cast<int>(wanted.rows), in = static_cast<int>(wanted.columns);
    int info = 0;
    T size = 0;
    geqrf(im, in, held->work.data(), held->tau.data(), &size, -1, &info);
    held->lapack_work.resize(static_cast<std::size_t>(size));
    made.variants.push_back({"OpenBLAS", [=] {
                               held->work = held->original;
                               openblas_set_num_threads(how.threads);
                               int status = 0;
                               return seconds_of([&] {
                                 for (std::int64_t b = 0; b < count; ++b)
                                   geqrf(im, in, held->work.data() + b * wanted.rows * wanted.columns, held->tau.data() + b * rank,
                                         held->lapack_work.data(), static_cast<int>(held->lapack_work.size()), &status);
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
