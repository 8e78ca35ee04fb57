// Compares QR with LAPACK's xGEQRF in OpenBLAS: the library that also provides Ballast's BLAS, here with its own threads.
#include <algorithm>
#include <complex>
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
void sgeqp3_(const int*, const int*, float*, const int*, int*, float*, float*, const int*, int*);
void dgeqp3_(const int*, const int*, double*, const int*, int*, double*, double*, const int*, int*);
void cgeqp3_(const int*, const int*, std::complex<float>*, const int*, int*, std::complex<float>*, std::complex<float>*, const int*, float*,
             int*);
void zgeqp3_(const int*, const int*, std::complex<double>*, const int*, int*, std::complex<double>*, std::complex<double>*, const int*,
             double*, int*);
void cgeqrf_(const int*, const int*, std::complex<float>*, const int*, std::complex<float>*, std::complex<float>*, const int*, int*);
void zgeqrf_(const int*, const int*, std::complex<double>*, const int*, std::complex<double>*, std::complex<double>*, const int*, int*);
void sgelsy_(const int*, const int*, const int*, float*, const int*, float*, const int*, int*, const float*, int*, float*, const int*,
             int*);
void dgelsy_(const int*, const int*, const int*, double*, const int*, double*, const int*, int*, const double*, int*, double*, const int*,
             int*);
void cgelsy_(const int*, const int*, const int*, std::complex<float>*, const int*, std::complex<float>*, const int*, int*, const float*,
             int*, std::complex<float>*, const int*, float*, int*);
void zgelsy_(const int*, const int*, const int*, std::complex<double>*, const int*, std::complex<double>*, const int*, int*, const double*,
             int*, std::complex<double>*, const int*, double*, int*);
void openblas_set_num_threads(int);
}

namespace ballast::bench {
namespace {

void geqrf(int m, int n, float* A, float* tau, float* work, int lwork, int* info) { sgeqrf_(&m, &n, A, &m, tau, work, &lwork, info); }
void geqrf(int m, int n, double* A, double* tau, double* work, int lwork, int* info) { dgeqrf_(&m, &n, A, &m, tau, work, &lwork, info); }
void geqrf(int m, int n, std::complex<float>* A, std::complex<float>* tau, std::complex<float>* work, int lwork, int* info) {
  cgeqrf_(&m, &n, A, &m, tau, work, &lwork, info);
}
void geqrf(int m, int n, std::complex<double>* A, std::complex<double>* tau, std::complex<double>* work, int lwork, int* info) {
  zgeqrf_(&m, &n, A, &m, tau, work, &lwork, info);
}

void geqp3(int m, int n, float* A, int* pivots, float* tau, float* work, int lwork, int* info) {
  sgeqp3_(&m, &n, A, &m, pivots, tau, work, &lwork, info);
}
void geqp3(int m, int n, double* A, int* pivots, double* tau, double* work, int lwork, int* info) {
  dgeqp3_(&m, &n, A, &m, pivots, tau, work, &lwork, info);
}
void geqp3(int m, int n, std::complex<float>* A, int* pivots, std::complex<float>* tau, std::complex<float>* work, int lwork, int* info) {
  std::vector<float> norms(static_cast<std::size_t>(2 * n));
  cgeqp3_(&m, &n, A, &m, pivots, tau, work, &lwork, norms.data(), info);
}
void geqp3(int m, int n, std::complex<double>* A, int* pivots, std::complex<double>* tau, std::complex<double>* work, int lwork,
           int* info) {
  std::vector<double> norms(static_cast<std::size_t>(2 * n));
  zgeqp3_(&m, &n, A, &m, pivots, tau, work, &lwork, norms.data(), info);
}

// One right-hand side.
void gelsy(int m, int n, float* A, float* b, int* pivots, double rcond, float* work, int lwork, int* info) {
  const int one = 1, rows = std::max(m, n);
  const auto limit = static_cast<float>(rcond);
  int rank = 0;
  sgelsy_(&m, &n, &one, A, &m, b, &rows, pivots, &limit, &rank, work, &lwork, info);
}
void gelsy(int m, int n, double* A, double* b, int* pivots, double rcond, double* work, int lwork, int* info) {
  const int one = 1, rows = std::max(m, n);
  int rank = 0;
  dgelsy_(&m, &n, &one, A, &m, b, &rows, pivots, &rcond, &rank, work, &lwork, info);
}
void gelsy(int m, int n, std::complex<float>* A, std::complex<float>* b, int* pivots, double rcond, std::complex<float>* work, int lwork,
           int* info) {
  const int one = 1, rows = std::max(m, n);
  const auto limit = static_cast<float>(rcond);
  std::vector<float> norms(static_cast<std::size_t>(2 * n));
  int rank = 0;
  cgelsy_(&m, &n, &one, A, &m, b, &rows, pivots, &limit, &rank, work, &lwork, norms.data(), info);
}
void gelsy(int m, int n, std::complex<double>* A, std::complex<double>* b, int* pivots, double rcond, std::complex<double>* work, int lwork,
           int* info) {
  const int one = 1, rows = std::max(m, n);
  std::vector<double> norms(static_cast<std::size_t>(2 * n));
  int rank = 0;
  zgelsy_(&m, &n, &one, A, &m, b, &rows, pivots, &rcond, &rank, work, &lwork, norms.data(), info);
}

template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<std::complex<T>> = true;

template <class T>
struct data {
  matrix<T> original, work;
  std::vector<T> tau, lapack_work;
  std::vector<std::int64_t> pivots;
  std::vector<int> lapack_pivots;
};

// Normal numbers.
template <class T>
std::shared_ptr<data<T>> random_data(std::int64_t rows, std::int64_t columns, std::int64_t scalars) {
  auto held = std::make_shared<data<T>>();
  held->original = matrix<T>(rows, columns, order::column_major);
  held->work = held->original;
  held->tau.resize(static_cast<std::size_t>(scalars));
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (std::size_t i = 0; i < held->original.size(); ++i) {
    T& each = held->original.data()[i];
    if constexpr (is_complex<T>)
      each = {static_cast<typename T::value_type>(normal(random)), static_cast<typename T::value_type>(normal(random))};
    else
      each = static_cast<T>(normal(random));
  }
  return held;
}

double flops_of(const qr::problem& wanted) {
  const double m = static_cast<double>(wanted.rows), n = static_cast<double>(wanted.columns);
  // A product and a sum of complex numbers are four products and four sums.
  return (wanted.complex ? 4 : 1) * static_cast<double>(wanted.batch) * (m >= n ? 2 * n * n * (m - n / 3) : 2 * m * m * (n - m / 3));
}

template <class T>
subject make(const qr::problem& wanted, const settings& how) {
  // The matrices of a batch are stored contiguously, as the columns of one matrix.
  const std::int64_t count = wanted.batch, rank = std::min(wanted.rows, wanted.columns);
  const auto held = random_data<T>(wanted.rows, wanted.columns * count, rank * count);

  subject made;
  made.token = qr::to_token(wanted);
  made.unit = count > 1 ? "batch" : "factorization";
  made.flops = flops_of(wanted);
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
    held->lapack_work.resize(static_cast<std::size_t>(std::real(size)));
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

// Least squares of any rank, for one right-hand side.
template <class T>
subject make_solved(const std::string& token, const qr::problem& wanted, const settings& how) {
  const std::int64_t rows = std::max(wanted.rows, wanted.columns);
  const auto held = random_data<T>(wanted.rows, wanted.columns, rows);
  const auto right = random_data<T>(rows, 1, 0);
  held->pivots.resize(static_cast<std::size_t>(wanted.columns));
  const double rcond = static_cast<double>(rows) * (wanted.precision == precision::f32 ? 0x1p-23 : 0x1p-52);  // NumPy's
  subject made;
  made.token = token;
  made.unit = "solution";
  made.flops = flops_of(wanted);
  for (const auto level : {protection::off, protection::correct}) {
    const qr::plan<T> plan(wanted, {.backend = how.backend, .threads = how.threads, .protection = level});
    made.variants.push_back({std::string(to_string(level)), [=] {
                               held->work = held->original;
                               right->work = right->original;
                               std::int64_t rank = 0;
                               return seconds_of(
                                   [&] { (void)plan.gelsy(held->work.view(), right->work.view(), held->pivots, rcond, rank); });
                             }});
  }
  if (how.peers) {
    const int im = static_cast<int>(wanted.rows), in = static_cast<int>(wanted.columns);
    held->lapack_pivots.resize(held->pivots.size());
    int info = 0;
    T size = 0;
    gelsy(im, in, held->work.data(), right->work.data(), held->lapack_pivots.data(), rcond, &size, -1, &info);
    held->lapack_work.resize(static_cast<std::size_t>(std::real(size)));
    made.variants.push_back({"OpenBLAS", [=] {
                               held->work = held->original;
                               right->work = right->original;
                               std::ranges::fill(held->lapack_pivots, 0);  // all columns are free
                               openblas_set_num_threads(how.threads);
                               int status = 0;
                               return seconds_of([&] {
                                 gelsy(im, in, held->work.data(), right->work.data(), held->lapack_pivots.data(), rcond,
                                       held->lapack_work.data(), static_cast<int>(held->lapack_work.size()), &status);
                               });
                             }});
  }
  return made;
}

// QR with column pivoting.
template <class T>
subject make_pivoted(const std::string& token, const qr::problem& wanted, const settings& how) {
  const auto held = random_data<T>(wanted.rows, wanted.columns, std::min(wanted.rows, wanted.columns));
  held->pivots.resize(static_cast<std::size_t>(wanted.columns));
  subject made;
  made.token = token;
  made.unit = "factorization";
  made.flops = flops_of(wanted);
  for (const auto level : {protection::off, protection::correct}) {
    const qr::plan<T> plan(wanted, {.backend = how.backend, .threads = how.threads, .protection = level});
    made.variants.push_back({std::string(to_string(level)), [=] {
                               held->work = held->original;
                               return seconds_of([&] { (void)plan.geqp3(held->work.view(), held->pivots, held->tau); });
                             }});
  }
  if (how.peers) {
    const int im = static_cast<int>(wanted.rows), in = static_cast<int>(wanted.columns);
    held->lapack_pivots.resize(held->pivots.size());
    int info = 0;
    T size = 0;
    geqp3(im, in, held->work.data(), held->lapack_pivots.data(), held->tau.data(), &size, -1, &info);
    held->lapack_work.resize(static_cast<std::size_t>(std::real(size)));
    made.variants.push_back({"OpenBLAS", [=] {
                               held->work = held->original;
                               std::ranges::fill(held->lapack_pivots, 0);  // all columns are free
                               openblas_set_num_threads(how.threads);
                               int status = 0;
                               return seconds_of([&] {
                                 geqp3(im, in, held->work.data(), held->lapack_pivots.data(), held->tau.data(), held->lapack_work.data(),
                                       static_cast<int>(held->lapack_work.size()), &status);
                               });
                             }});
  }
  return made;
}

// Reads geqp3_… or gelsy_….
qr::problem one_matrix(const std::string& token) {
  const qr::problem wanted = qr::parse_token("qr" + token.substr(token.find('_')));
  if (wanted.batch != 1) throw invalid_argument_error(token + ": expected one matrix, got a batch");
  return wanted;
}

}  // namespace

subject make_gelsy(const std::string& token, const settings& how) {
  const qr::problem wanted = one_matrix(token);
  const bool single = wanted.precision == precision::f32;
  if (wanted.complex)
    return single ? make_solved<std::complex<float>>(token, wanted, how) : make_solved<std::complex<double>>(token, wanted, how);
  return single ? make_solved<float>(token, wanted, how) : make_solved<double>(token, wanted, how);
}

subject make_geqp3(const std::string& token, const settings& how) {
  const qr::problem wanted = one_matrix(token);
  const bool single = wanted.precision == precision::f32;
  if (wanted.complex)
    return single ? make_pivoted<std::complex<float>>(token, wanted, how) : make_pivoted<std::complex<double>>(token, wanted, how);
  return single ? make_pivoted<float>(token, wanted, how) : make_pivoted<double>(token, wanted, how);
}

subject make_qr(const std::string& token, const settings& how) {
  const qr::problem wanted = qr::parse_token(token);
  if (wanted.complex)
    return wanted.precision == precision::f32 ? make<std::complex<float>>(wanted, how) : make<std::complex<double>>(wanted, how);
  return wanted.precision == precision::f32 ? make<float>(wanted, how) : make<double>(wanted, how);
}

}  // namespace ballast::bench
