// Whole calls of QR: geqrf, ormqr, orgqr, Q and R, least squares, of one matrix and of batches; operands and results in device memory.
#include <algorithm>
#include <array>
#include <optional>

#include "calls.hpp"
#include "each_case.hpp"
#include "nvidia.hpp"
#include "qr_stages.hpp"

namespace ballast::gpu_check::factors {
namespace {

enum class what_runs : std::uint8_t { geqrf, ormqr, orgqr, q_and_r, gels };
constexpr std::array k_names = {"geqrf", "ormqr", "orgqr", "Q and R", "lstsq"};

// Numbers repeat after so many: a prime, so that no two columns are equal. Random ones for all would take the host longer than the calls.
constexpr index k_different = 16'777'213;

// The operands of a problem. Restored before each call.
template <class T>
class operands {
 public:
  operands(const qr::problem& what, bool by_rows)
      : what_(what),
        by_rows_(by_rows),
        steps_(std::min(what.rows, what.columns)),
        source_(what.rows * what.columns * what.batch * size),
        matrix_(source_.bytes()),
        factors_(source_.bytes()),
        tau_(steps_ * what.batch * size),
        right_(what.rows * what.batch * size),
        upper_(steps_ * what.columns * size) {
    const std::vector<T> values =
        matrix_of<T>({.precision = what.precision, .rows = std::min(k_different, source_.bytes() / size), .columns = 1}, 11);
    const auto bytes = static_cast<index>(values.size() * sizeof(T));
    for (index at = 0; at < source_.bytes(); at += bytes)
      gpu::copy(static_cast<char*>(source_.data()) + at, values.data(), std::min(bytes, source_.bytes() - at));
    gpu::synchronize();
  }

  T* matrix() const { return static_cast<T*>(matrix_.data()); }
  T* tau() const { return static_cast<T*>(tau_.data()); }
  const T* factors() const { return static_cast<const T*>(factors_.data()); }

  qr::plan<T> plan(protection level, int sampled = 1) const {
    return qr::plan<T>(what_, {.backend = tested, .protection = level, .sampled = sampled});
  }
  // Keeps factors for ormqr and orgqr.
  void factor(const qr::plan<T>& plan) {
    prepare(what_runs::geqrf);
    run(plan, what_runs::geqrf);
    gpu::copy(factors_.data(), matrix_.data(), factors_.bytes());
    gpu::synchronize();
  }
  void prepare(what_runs which) const {
    gpu::copy(matrix_.data(), which == what_runs::orgqr ? factors_.data() : source_.data(), matrix_.bytes());
    if (which == what_runs::gels) gpu::copy(right_.data(), source_.data(), right_.bytes());
  }
  void run(const qr::plan<T>& plan, what_runs which) const {
    if (which == what_runs::q_and_r) {
      run(plan, what_runs::geqrf);
      keep_upper();
      return run(plan, what_runs::orgqr);
    }
    const report seen = what_.batch == 1 ? run_one(plan, which) : run_batch(plan, which);
    if (seen.detected > 0) throw error("a false alarm: " + describe(seen));
  }

 private:
  static constexpr auto size = static_cast<index>(sizeof(T));

  report run_one(const qr::plan<T>& plan, what_runs which) const {
    const call now{.stream = gpu::stream()};
    const auto A = column_major(matrix(), what_.rows, what_.columns);
    const std::span<T> scalars(tau(), static_cast<std::size_t>(steps_));
    const std::span<const T> given = scalars;
    if (which == what_runs::geqrf) return plan.geqrf(A, scalars, now);
    if (which == what_runs::orgqr) return plan.orgqr(A, given, now);
    if (which == what_runs::gels) return plan.gels(A, column_major(static_cast<T*>(right_.data()), what_.rows, 1), now);
    return plan.ormqr(qr::side::left, qr::transpose::yes, column_major(factors(), what_.rows, what_.columns), given, A, now);
  }
  report run_batch(const qr::plan<T>& plan, what_runs which) const {
    const call now{.stream = gpu::stream()};
    const auto A = batch_of(by_rows_ ? row_major(matrix(), what_.rows, what_.columns) : column_major(matrix(), what_.rows, what_.columns),
                            what_.batch);
    const std::span<T> scalars(tau(), static_cast<std::size_t>(steps_ * what_.batch));
    if (which == what_runs::geqrf) return plan.geqrf(A, scalars, now);
    if (which == what_runs::orgqr) return plan.orgqr(A, std::span<const T>(scalars), now);
    return plan.gels(A, batch_of(column_major(static_cast<T*>(right_.data()), what_.rows, 1), what_.batch), now);
  }
  // Copies the rows of R.
  void keep_upper() const {
    if (what_.batch > 1) return gpu::copy(factors_.data(), matrix_.data(), matrix_.bytes());
    if (tested == backend::cuda)
      return ballast::cuda::current_device()->copy_columns(upper_.data(), steps_ * size, matrix_.data(), what_.rows * size, steps_ * size,
                                                           what_.columns, gpu::stream());
    for (index j = 0; j < what_.columns; ++j)
      gpu::copy(static_cast<T*>(upper_.data()) + j * steps_, matrix() + j * what_.rows, steps_ * size);
  }

  qr::problem what_;
  bool by_rows_;
  index steps_;
  gpu::buffer source_, matrix_, factors_, tau_, right_, upper_;
};

// The calls of a problem. Applying and forming Q of the largest matrices would take most of the time.
std::vector<what_runs> calls_of(const qr::problem& what) {
  if (what.rows == what.columns && what.rows > 8192) return {what_runs::geqrf};
  if (what.batch > 1) return {what_runs::geqrf, what_runs::q_and_r, what_runs::gels};
  return {what_runs::geqrf, what_runs::ormqr, what_runs::orgqr, what_runs::q_and_r, what_runs::gels};
}

// NVIDIA's function for a call of one matrix, or of a batch; nothing if there is none.
template <class T>
std::optional<call_variant> rival_of(const qr::problem& what, what_runs which, const operands<T>& with, std::optional<cusolver>& solver,
                                     std::optional<cublas_batched>& batched) {
  call_variant made{what.batch > 1 ? "cuBLAS" : "cuSOLVER", [&with, which] { with.prepare(which); }, {}};
  const index m = what.rows, n = what.columns;
  T* const a = with.matrix();
  T* const tau = with.tau();
  if (what.batch > 1) {
    if (which != what_runs::geqrf) return std::nullopt;
    made.refused = cublas_batched::why_not();
    if (made.refused.empty()) made.refused = refusal([&] { batched.emplace(what, a, tau); });
    made.run = [&batched, a] { batched->run(a); };
    return made;
  }
  if (which == what_runs::q_and_r || which == what_runs::gels) return std::nullopt;
  made.refused = cusolver::why_not();
  if (made.refused.empty())
    made.refused = refusal([&] {
      solver.emplace();
      if (which == what_runs::geqrf) solver->prepare_run(m, n, a);
      if (which == what_runs::ormqr) solver->prepare_apply(m, n, a, tau);
      if (which == what_runs::orgqr) solver->prepare_form(m, n, a, tau);
    });
  made.run = [&solver, &with, which, m, n, a, tau] {
    if (which == what_runs::geqrf) solver->run(m, n, a, tau);
    if (which == what_runs::ormqr) solver->apply(m, n, with.factors(), tau, a);
    if (which == what_runs::orgqr) solver->form(m, n, a, tau);
  };
  return made;
}

template <class T>
int time_calls(const std::string& token, double seconds) {
  const time_limit limit(seconds);
  const qr::problem what = qr::parse_token(token);
  const bool by_rows = what.batch > 1 && what.rows == 17;  // batches by rows take a way of their own
  operands<T> with(what, by_rows);
  const qr::plan<T> plans[] = {with.plan(protection::off), with.plan(protection::correct), with.plan(protection::correct, k_sampled)};
  const std::vector<what_runs> all = calls_of(what);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const what_runs which = all[i];
    const double share = limit.left() / static_cast<double>(all.size() - i);
    const whole_call named{token, std::string(k_names[static_cast<std::size_t>(which)]) + (by_rows ? ", by rows" : "")};
    if (which == what_runs::ormqr || which == what_runs::orgqr) with.factor(plans[1]);
    std::optional<cusolver> solver;
    std::optional<cublas_batched> batched;
    std::vector<call_variant> variants;
    for (const int v : {0, 1})
      variants.push_back({v == 0 ? "off" : "correct", [&, which] { with.prepare(which); }, [&, v, which] { with.run(plans[v], which); }});
    // Ten calls, each with a copy of the matrix before it, as short beside the call as a reading of the matrix: factors of factors would be
    // ill-conditioned after some calls, and take the way of such matrices. They take seconds with the largest problems.
    if (which == what_runs::geqrf && what.rows * what.columns * what.batch <= index{1} << 24) {
      variants.push_back({"sampled", [] {},
                          [&, which] {
                            for (int c = 0; c < k_sampled; ++c) {
                              with.prepare(which);
                              with.run(plans[2], which);
                            }
                          }});
      variants.back().calls = k_sampled;
    }
    if (tested == backend::cuda && !by_rows) {
      if (auto rival = rival_of(what, which, with, solver, batched)) variants.push_back(std::move(*rival));
    }
    const double once = time_call(named, variants, 0.6 * share);
    if (tested != backend::cuda || 2 * once > limit.left()) continue;
    const profiling_scope scope;
    const qr::plan<T> plan = with.plan(protection::correct);
    profile_call(scope.device(), named, "correct", [&] {
      with.prepare(which);
      with.run(plan, which);
    });
  }
  return 0;
}

}  // namespace

std::vector<std::string> called_set(bool quick) {
  if (quick) return {"qr_f64_m60_n60", "qr_f32_m300_n40", "qr_f64_m17_n17_b9"};
  std::vector<std::string> made;
  for (const char* shape : {"m32_n32", "m200_n200", "m1024_n1024", "m4096_n4096", "m1000000_n32", "m17_n17_b301", "m8_n8_b10000",
                            "m64_n64_b1000", "m256_n256_b100", "m1000_n20_b200", "m300_n8_b5000", "m4000_n32_b132", "m8192_n8192",
                            "m1000000_n128", "m100000_n1000", "m16384_n16384", "m32768_n32768"}) {
    for (const char* type : {"f64", "f32"}) made.push_back(std::string("qr_").append(type).append("_").append(shape));
  }
  return made;
}

int calls(const settings& wanted, const time_limit& limit) {
  const std::vector<std::string> tokens = wanted.tokens.empty() ? called_set(wanted.quick) : wanted.tokens;
  std::size_t left = tokens.size();
  return time_each(tokens, qr::parse_token, limit, "call", [&](auto zero, const std::string& token) {
    return time_calls<decltype(zero)>(token, limit.left() / static_cast<double>(left--));
  });
}

// The first call of this process: the device, the plan, the kernels, the call.
int first_call(const settings& wanted, const time_limit&) {
  if (wanted.tokens.size() != 1) throw invalid_argument_error("first_call: expected one TOKEN");
  const std::string& token = wanted.tokens[0];
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const operands<T> with(qr::parse_token(token), false);
    with.prepare(what_runs::geqrf);
    print_first_call({token, "geqrf"}, [&] { with.run(with.plan(protection::correct), what_runs::geqrf); });
  };
  if (qr::parse_token(token).precision == precision::f32) {
    run(float());
  } else {
    run(double());
  }
  return 0;
}

}  // namespace ballast::gpu_check::factors
