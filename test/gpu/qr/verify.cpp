// Verifies results: A = QR and QᵀQ = I on random vectors, Q formed and least squares, no false alarm on clean data, faults at every site.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "../../../bench/gpu.hpp"
#include "core/counter_rng.hpp"
#include "each_case.hpp"
#include "inject/injector.hpp"
#include "qr_stages.hpp"
#include "run/settings.hpp"
#include "support/qr_calls.hpp"

namespace ballast::gpu_check::factors {
namespace {

namespace gpu = bench::gpu;
using index = std::int64_t;

template <class T>
constexpr double k_u = std::numeric_limits<T>::epsilon() / 2;

run::settings on(protection level = protection::correct, const inject::plan* faults = nullptr) {
  return {.backend = tested, .threads = 1, .protection = level, .throw_on_uncorrectable = false, .faults = faults, .stream = gpu::stream()};
}

std::vector<double> random_vector(index count, std::uint64_t seed) {
  std::vector<double> made;
  for (index i = 0; i < count; ++i) made.push_back(core::random_uniform(seed, 1, static_cast<std::uint64_t>(i)) * 2 - 1);
  return made;
}

// Factors in device memory, read back. A batch is stored matrix by matrix.
template <class T>
struct factored {
  std::vector<T> F, tau;
  report seen;
};

template <class T>
factored<T> factor(const qr::problem& what, const std::vector<T>& A, const run::settings& how) {
  const index k = std::min(what.rows, what.columns) * what.batch;
  factored<T> made{std::vector<T>(A.size()), std::vector<T>(static_cast<std::size_t>(k)), {}};
  const gpu::buffer there(static_cast<index>(A.size() * sizeof(T))), scalars(k * static_cast<index>(sizeof(T)));
  gpu::copy(there.data(), A.data(), there.bytes());
  gpu::synchronize();
  const matrix_view<T> first = column_major(static_cast<T*>(there.data()), what.rows, what.columns);
  const std::span<T> tau(static_cast<T*>(scalars.data()), static_cast<std::size_t>(k));
  made.seen = what.batch > 1 ? qr::geqrf(batch_of(first, what.batch), tau, how) : qr::geqrf(first, tau, how);
  gpu::copy(made.F.data(), there.data(), there.bytes());
  gpu::copy(made.tau.data(), scalars.data(), scalars.bytes());
  gpu::synchronize();
  return made;
}

// Computes x ← Q x or Qᵀ x by one reflector after the other, on the host. Sums run in long double: a sum of a million doubles of one sign
// would have a larger error than the measured one.
template <class T>
void apply(const qr::problem& what, const factored<T>& f, bool transposed, std::vector<double>& x) {
  const index m = what.rows, k = std::min(m, what.columns);
  for (index s = 0; s < k; ++s) {
    const index j = transposed ? s : k - 1 - s;
    const T* const v = f.F.data() + j * m;
    long double dot = x[static_cast<std::size_t>(j)];
    for (index i = j + 1; i < m; ++i) dot += static_cast<long double>(v[i]) * x[static_cast<std::size_t>(i)];
    const auto sum = static_cast<double>(dot * f.tau[static_cast<std::size_t>(j)]);
    x[static_cast<std::size_t>(j)] -= sum;
    for (index i = j + 1; i < m; ++i) x[static_cast<std::size_t>(i)] -= static_cast<double>(v[i]) * sum;
  }
}

double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double each : x) sum += each * each;
  return std::sqrt(sum);
}

// Returns ‖A x − Q R x‖ over ‖A‖_F ‖x‖ √max(m, n) u / √n, and ‖QᵀQ y − y‖ over ‖y‖ √max(m, n) u, for random x and y.
template <class T>
std::pair<double, double> errors_of_one(const qr::problem& what, const std::vector<T>& A, const factored<T>& f) {
  const index m = what.rows, n = what.columns;
  const std::vector<double> x = random_vector(n, 7);
  std::vector<double> right(static_cast<std::size_t>(m)), made(right);
  double square = 0;
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) {
      const auto a = static_cast<double>(A[static_cast<std::size_t>(i + j * m)]);
      right[static_cast<std::size_t>(i)] += a * x[static_cast<std::size_t>(j)];
      square += a * a;
      if (i <= j)
        made[static_cast<std::size_t>(i)] += static_cast<double>(f.F[static_cast<std::size_t>(i + j * m)]) * x[static_cast<std::size_t>(j)];
    }
  }
  apply(what, f, false, made);
  for (std::size_t i = 0; i < made.size(); ++i) made[i] -= right[i];
  const double unit = std::sqrt(static_cast<double>(std::max(m, n))) * k_u<T>;
  const double residual = norm_of(made) / (std::sqrt(square / static_cast<double>(n)) * norm_of(x) * unit);
  const std::vector<double> y = random_vector(m, 8);
  std::vector<double> z = y;
  apply(what, f, false, z);
  apply(what, f, true, z);
  for (std::size_t i = 0; i < z.size(); ++i) z[i] -= y[i];
  return {residual, norm_of(z) / (norm_of(y) * unit)};
}

// Returns the maximum over all matrices of a batch.
template <class T>
std::pair<double, double> errors_of(const qr::problem& what, const std::vector<T>& A, const factored<T>& f) {
  if (what.batch == 1) return errors_of_one(what, A, f);
  std::pair<double, double> worst = {0, 0};
  const auto part = [&](const std::vector<T>& all, index b) {
    const index own = static_cast<index>(all.size()) / what.batch;
    return std::vector<T>(all.begin() + b * own, all.begin() + (b + 1) * own);
  };
  for (index b = 0; b < what.batch; ++b) {
    const auto [residual, orthogonality] = errors_of_one(what, part(A, b), factored<T>{part(f.F, b), part(f.tau, b), {}});
    if (!(residual <= worst.first)) worst.first = residual;
    if (!(orthogonality <= worst.second)) worst.second = orthogonality;
  }
  return worst;
}

// Q formed and least squares of a batch in host memory: the columns of Q are orthonormal, and the residual is orthogonal to A.
template <class T>
void batch_accuracy(tally& seen, const std::string& token) {
  const qr::problem what = qr::parse_token(token);
  one_case now(seen, "accuracy", token, "orgqr, gels");
  now.guarded([&] {
    const std::vector<T> A = matrix_of<T>(what, 3);
    factored<T> made = factor(what, A, on());
    std::vector<T> Q = made.F;
    const matrix_batch_view<T> q = batch_of(column_major(Q.data(), what.rows, what.columns), what.batch);
    const report formed = qr::orgqr(q, std::span<const T>(made.tau), on());
    now.expect(formed.verdict == verdict::clean && formed.detected == 0, "orgqr: a false alarm: " + describe(formed));
    std::vector<T> G = A, B = matrix_of<T>({what.precision, what.rows, 1, what.batch}, 9);
    const std::vector<T> right = B;
    const report solved = qr::gels(batch_of(column_major(G.data(), what.rows, what.columns), what.batch),
                                   batch_of(column_major(B.data(), what.rows, index{1}), what.batch), on());
    now.expect(solved.verdict == verdict::clean && solved.detected == 0, "gels: a false alarm: " + describe(solved));
    double off = 0, along = 0;
    for (index b = 0; b < what.batch; ++b) {
      const T* const a = A.data() + b * what.rows * what.columns;
      for (index j = 0; j < what.columns; ++j) {
        for (index l = 0; l <= j; ++l) {
          double dot = j == l ? -1 : 0;
          for (index i = 0; i < what.rows; ++i) dot += static_cast<double>(q[b](i, j)) * static_cast<double>(q[b](i, l));
          off = std::max(off, std::abs(dot));
        }
      }
      std::vector<double> r(right.begin() + b * what.rows, right.begin() + (b + 1) * what.rows);
      double largest = 1;
      for (index j = 0; j < what.columns; ++j) {
        const auto x = static_cast<double>(B[static_cast<std::size_t>(b * what.rows + j)]);
        largest = std::max(largest, std::abs(x));
        for (index i = 0; i < what.rows; ++i) r[static_cast<std::size_t>(i)] -= static_cast<double>(a[i + j * what.rows]) * x;
      }
      for (index j = 0; j < what.columns; ++j) {
        double sum = 0;
        for (index i = 0; i < what.rows; ++i) sum += r[static_cast<std::size_t>(i)] * static_cast<double>(a[i + j * what.rows]);
        along = std::max(along, std::abs(sum) / largest);
      }
    }
    now.expect(off <= 100 * static_cast<double>(what.rows) * k_u<T>, "orgqr: columns are not orthonormal");
    now.expect(along <= 300 * static_cast<double>(what.rows * what.columns) * k_u<T>, "gels: the residual is not orthogonal to A");
  });
}

// Least squares of a matrix in host memory: the residual is orthogonal to A.
template <class T>
void least_squares(one_case& now, const qr::problem& what, const std::vector<T>& A) {
  std::vector<T> G = A, B(static_cast<std::size_t>(what.rows));
  for (index i = 0; i < what.rows; ++i)
    B[static_cast<std::size_t>(i)] = static_cast<T>(core::random_uniform(9, 0, static_cast<std::uint64_t>(i)));
  const std::vector<T> right = B;
  const report solved = qr::gels(column_major(G.data(), what.rows, what.columns), column_major(B.data(), what.rows, index{1}), on());
  now.expect(solved.verdict == verdict::clean && solved.detected == 0, "gels: a false alarm: " + describe(solved));
  std::vector<double> r(right.begin(), right.end());
  double most = 0;
  for (index j = 0; j < what.columns; ++j) {
    for (index i = 0; i < what.rows; ++i)
      r[static_cast<std::size_t>(i)] -=
          static_cast<double>(A[static_cast<std::size_t>(i + j * what.rows)]) * static_cast<double>(B[static_cast<std::size_t>(j)]);
  }
  for (index j = 0; j < what.columns; ++j) {
    double sum = 0;
    for (index i = 0; i < what.rows; ++i)
      sum += r[static_cast<std::size_t>(i)] * static_cast<double>(A[static_cast<std::size_t>(i + j * what.rows)]);
    most = std::max(most, std::abs(sum));
  }
  const double bound = 300 * static_cast<double>(what.rows) * k_u<T>;
  now.line().add("gels_in_bounds", most / bound);
  now.expect(most <= bound, "gels: the residual is not orthogonal to A");
}

// The second call of a plan takes no more memory of the device.
template <class T>
void second_call(tally& seen, const std::string& token) {
  const qr::problem what = qr::parse_token(token);
  if (what.batch > 1) return;
  one_case now(seen, "accuracy", token, "device memory of a second call");
  now.guarded([&] {
    const std::vector<T> A = matrix_of<T>(what, 3);
    const qr::plan<T> plan(what, on().where());
    std::vector<T> F, tau(static_cast<std::size_t>(std::min(what.rows, what.columns)));
    std::int64_t free = 0;
    for (int call = 0; call < 2; ++call) {
      F = A;
      const report seen_here = plan.geqrf(column_major(F.data(), what.rows, what.columns), tau, on().now());
      now.expect(seen_here.verdict == verdict::clean, "a false alarm: " + describe(seen_here));
      if (call == 0) free = gpu::free_bytes();
    }
    now.expect(gpu::free_bytes() == free, "the second call took memory of the device");
  });
}

constexpr double k_bound = 12;  // bound on both errors; clean ones on the cpu backend are below 3

// Factorizes a matrix in host memory while most of the device memory is taken, so that its columns are processed in pieces.
template <class T>
void out_of_core_case(tally& seen, const std::string& token) {
  one_case now(seen, "pieces", token, "geqrf, gels of a matrix that does not fit");
  now.guarded([&] {
    const qr::problem what = qr::parse_token(token);
    const std::vector<T> A = matrix_of<T>(what, 3);
    const auto device = cuda::current_device();
    const index bytes = static_cast<index>(A.size() * sizeof(T)), room = 2 * bytes + (index{120} << 20);
    gpu::synchronize();
    const index taken = device->available_memory() - room;
    if (taken <= 0) return now.fail("expected more memory than the matrix has");
    const cuda::device_buffer others(device, taken, gpu::stream());
    gpu::synchronize();
    factored<T> made{A, std::vector<T>(static_cast<std::size_t>(std::min(what.rows, what.columns))), {}};
    const time_limit clock(0);
    made.seen = qr::geqrf(column_major(made.F.data(), what.rows, what.columns), std::span<T>(made.tau), on());
    now.line().add("milliseconds", -clock.left() * 1e3).add("room", room).add("bytes", bytes);
    now.expect(made.seen.verdict == verdict::clean && made.seen.detected == 0, "a false alarm: " + describe(made.seen));
    const auto [residual, orthogonality] = errors_of(what, A, made);
    now.line().add("error_in_bounds", std::max(residual, orthogonality) / k_bound);
    now.expect(residual < k_bound && orthogonality < k_bound, "it is not A = QR");
    least_squares(now, what, A);
  });
}

template <class T>
void accuracy(tally& seen, const std::string& token) {
  second_call<T>(seen, token);
  const qr::problem what = qr::parse_token(token);
  const std::vector<T> A = matrix_of<T>(what, 3);
  for (const protection level : {protection::off, protection::correct}) {
    one_case now(seen, "accuracy", token, level == protection::off ? "off" : "correct");
    now.guarded([&] {
      const factored<T> made = factor(what, A, on(level));
      now.expect(made.seen.verdict == verdict::clean && made.seen.detected == 0, "a false alarm: " + describe(made.seen));
      now.expect(level == protection::off || made.seen.checks > 0, "no check was made");
      const auto [residual, orthogonality] = errors_of(what, A, made);
      now.line()
          .add("residual", residual)
          .add("orthogonality", orthogonality)
          .add("error_in_bounds", std::max(residual, orthogonality) / k_bound);
      now.expect(residual < k_bound && orthogonality < k_bound, "errors above the bound");
    });
  }
  if (what.batch > 1 && what.rows >= what.columns) return batch_accuracy<T>(seen, token);
  if (what.rows < what.columns || what.rows > 6000) return;
  one_case now(seen, "accuracy", token, "orgqr, gels");
  now.guarded([&] {
    // Host operands: the columns of Q are orthonormal, and the residual of least squares is orthogonal to A.
    factored<T> made = factor(what, A, on());
    std::vector<T> Q = made.F;
    const report formed = qr::orgqr(column_major(Q.data(), what.rows, what.columns), std::span<const T>(made.tau), on());
    now.expect(formed.verdict == verdict::clean && formed.detected == 0, "orgqr: a false alarm: " + describe(formed));
    double worst = 0;
    for (index j = 0; j < what.columns; j += std::max<index>(1, what.columns / 7)) {
      std::vector<double> e(static_cast<std::size_t>(what.rows));
      e[static_cast<std::size_t>(j)] = 1;
      apply(what, made, false, e);
      for (index i = 0; i < what.rows; ++i)
        worst =
            std::max(worst, std::abs(e[static_cast<std::size_t>(i)] - static_cast<double>(Q[static_cast<std::size_t>(i + j * what.rows)])));
    }
    now.line().add("orgqr", worst / k_u<T>);
    now.expect(worst <= 20 * std::sqrt(static_cast<double>(what.rows)) * k_u<T>, "orgqr: another Q");
    if (what.rows == what.columns) return;
    least_squares(now, what, A);
  });
}

template <class T>
void clean(tally& seen, const std::string& token, int kind) {
  static constexpr const char* names[] = {"constant", "scaled columns", "graded", "low rank", "zero columns", "subnormal", "nearly equal"};
  const qr::problem what = qr::parse_token(token);
  std::vector<T> A = matrix_of<T>(what, 4);
  for (index c = 0; c < what.columns * what.batch; ++c) {
    const index j = c % what.columns;
    for (index i = 0; i < what.rows; ++i) {
      T& a = A[static_cast<std::size_t>(i + c * what.rows)];
      if (kind == 0) a = T(1.7);
      if (kind == 1) a = std::ldexp(a, static_cast<int>(j * 37 % 121) - 60);
      if (kind == 2) a = std::ldexp(a, -static_cast<int>((i + j) % 100));
      if (kind == 3) a = static_cast<T>(static_cast<double>(i % 5) * 0.3 + static_cast<double>(j % 3));
      if (kind == 4 && j % 3 == 1) a = 0;
      if (kind == 5) a = static_cast<T>(static_cast<double>(a) * (sizeof(T) == 4 ? 1e-40 : 1e-310));
      if (kind == 6) a = static_cast<T>(1 + static_cast<double>(a) * (sizeof(T) == 4 ? 1e-6 : 1e-14));
    }
  }
  one_case now(seen, "clean", token, names[kind]);
  now.guarded([&] {
    const factored<T> made = factor(what, A, on());
    now.expect(made.seen.verdict == verdict::clean && made.seen.detected == 0, "a false alarm: " + describe(made.seen));
    const auto [residual, orthogonality] = errors_of(what, A, made);
    now.line().add("orthogonality", orthogonality);
    now.expect(orthogonality < 3 * k_bound, "Q is not orthogonal");
    if (kind != 5) now.expect(residual < 3 * k_bound, "errors above the bound");
  });
}

template <class T>
void faults(tally& seen, const std::string& token, const settings& wanted, const time_limit& limit) {
  const qr::problem what = qr::parse_token(token);
  const std::vector<T> A = matrix_of<T>(what, 3);
  strike_every_site(seen, "qr", token, 61, false, wanted, limit, [&](const inject::plan& plan) {
    factored<T> found = factor(what, A, on(protection::correct, &plan));
    const auto [residual, orthogonality] = errors_of(what, A, found);
    return outcome{std::move(found.seen), !(residual < 20 * k_bound) || !(orthogonality < 20 * k_bound)};
  });
}

}  // namespace

int verify(const settings& wanted, const time_limit& limit) {
  tally seen;
  const auto each = [&](const std::vector<std::string>& list, const auto& body) {
    each_problem(wanted.tokens.empty() ? list : wanted.tokens, qr::parse_token, limit, seen, body);
  };
  const bool only_faults = inject::active_injector::enabled && !wanted.groups.empty();
  if (wanted.includes("clean") && !only_faults)
    each(sanitized_set(), [&](auto zero, const std::string& token) {
      for (int kind = 0; kind < 7; ++kind) clean<decltype(zero)>(seen, token, kind);
    });
  if (wanted.includes("accuracy") && !only_faults)
    each(verified_set(wanted.quick), [&](auto zero, const std::string& token) { accuracy<decltype(zero)>(seen, token); });
  if (tested == backend::cuda && wanted.includes("pieces") && !only_faults && wanted.tokens.empty())
    each({"qr_f64_m6000_n5000", "qr_f32_m6000_n5000"},
         [&](auto zero, const std::string& token) { out_of_core_case<decltype(zero)>(seen, token); });
  if (inject::active_injector::enabled && wanted.includes("faults"))
    each(sanitized_set(), [&](auto zero, const std::string& token) { faults<decltype(zero)>(seen, token, wanted, limit); });
  return ended(seen, "verify");
}

int sanitize(const settings& wanted, const time_limit& limit) {
  tally seen;
  each_problem(wanted.tokens.empty() ? sanitized_set() : wanted.tokens, qr::parse_token, limit, seen,
               [&](auto zero, const std::string& token) { accuracy<decltype(zero)>(seen, token); });
  return ended(seen, "sanitize");
}

}  // namespace ballast::gpu_check::factors
