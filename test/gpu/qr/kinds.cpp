// The stage `kinds` of QR: complex matrices beside cuSOLVER and cuBLAS, and column pivoting.
#include <optional>
#include <utility>

#include "../../strike/subjects/subject.hpp"
#include "kinds.hpp"
#include "qr_stages.hpp"
#include "whole_calls.hpp"
#include "wide_check.hpp"

namespace ballast::gpu_check::factors {
namespace {

// Bounds on the errors of wide_check: as in the stage verify; for least squares four times as large, as explained there.
constexpr double k_factors_bound = 12, k_solved_bound = 48;
constexpr index k_checked_with_protection_only = index{1} << 22;  // elements of a matrix whose result is checked only with protection

// geqp3, whose call takes the pivots beside the other operands.
constexpr std::string_view k_pivoted = "geqp3";

std::optional<what_runs> call_of(std::string_view operation) {
  if (operation == "geqrf" || operation == k_pivoted) return what_runs::geqrf;
  if (operation == "ormqr") return what_runs::ormqr;
  if (operation == "orgqr") return what_runs::orgqr;
  if (operation == "gels") return what_runs::gels;
  return std::nullopt;
}

template <class T>
std::vector<T> copied_to_host(const T* from, index count) {
  std::vector<T> made(static_cast<std::size_t>(count));
  gpu::copy(made.data(), from, count * static_cast<index>(sizeof(T)));
  gpu::synchronize();
  return made;
}

// The error of the result of the last call in its bounds; of a batch the larger one of the first and the last matrix.
template <class T>
measured_error error_of_result(const operands<T>& with, what_runs which, const std::vector<index>& pivots) {
  const qr::problem& what = with.what();
  const index m = what.rows, n = what.columns, size = m * n, steps = std::min(m, n);
  const wide_check<T> check(m, n);
  double worst = 0;
  for (const index b : {index{0}, what.batch - 1}) {
    const std::vector<T> given = copied_to_host(with.source() + b * size, size), made = copied_to_host<T>(with.matrix() + b * size, size),
                         tau = copied_to_host<T>(with.tau() + b * steps, steps);
    double error = 0;
    if (which == what_runs::geqrf) {
      error = check.factors(given.data(), made.data(), tau.data(), pivots.empty() ? nullptr : pivots.data());
      if (!pivots.empty()) error = std::max(error, check.order(given.data(), made.data()));
    } else if (which == what_runs::gels) {
      const std::vector<T> right = copied_to_host(with.right_source() + b * m, m), x = copied_to_host<T>(with.right() + b * m, n);
      error = check.solved(given.data(), right.data(), x.data());
    } else {
      const std::vector<T> factors = copied_to_host(with.factors() + b * size, size);
      error = which == what_runs::ormqr ? check.applied(given.data(), made.data(), factors.data(), tau.data())
                                        : check.formed(made.data(), factors.data(), tau.data());
    }
    if (!(error <= worst)) worst = error;
    if (what.batch == 1) break;
  }
  return {std::isnan(worst) ? std::numeric_limits<double>::infinity() : worst, which == what_runs::gels ? k_solved_bound : k_factors_bound};
}

template <class T>
void time_kind(const std::string& name, double seconds, tally& seen) {
  const strike::subject_name parsed = strike::parse_subject(name);
  const qr::problem what = qr::parse_token(parsed.token);
  const what_runs which = *call_of(parsed.operation);
  const bool pivoted = parsed.operation == k_pivoted;
  operands<T> with(what, false);
  const qr::plan<T> plans[] = {with.plan(protection::off), with.plan(protection::correct)};
  std::vector<index> pivots(pivoted ? static_cast<std::size_t>(what.columns) : 0);
  const auto run = [&](const qr::plan<T>& plan) {
    if (!pivoted) return with.run(plan, which);
    const report found =
        plan.geqp3(column_major(with.matrix(), what.rows, what.columns), pivots,
                   std::span<T>(with.tau(), static_cast<std::size_t>(std::min(what.rows, what.columns))), {.stream = gpu::stream()});
    if (found.detected > 0) throw error("a false alarm: " + describe(found));
  };
  if (which == what_runs::ormqr || which == what_runs::orgqr) with.factor(plans[1]);
  std::optional<cusolver> solver;
  std::optional<cublas_batched> batched;
  std::vector<call_variant> variants;
  for (const int v : {0, 1})
    variants.push_back({v == 0 ? "off" : "correct", [&, which] { with.prepare(which); }, [&, v] { run(plans[v]); }});
  if (tested == backend::cuda && !pivoted) {
    if (auto rival = rival_of(what, which, with, solver, batched)) variants.push_back(std::move(*rival));
  }
  (void)time_call({name, parsed.operation, k_kind_row}, variants, 0.6 * seconds);
  for (const int v : {0, 1}) {
    if (v == 0 && what.rows * what.columns > k_checked_with_protection_only) continue;
    check_kind(seen, name, v == 0 ? "off" : "correct", [&] {
      if (which == what_runs::ormqr || which == what_runs::orgqr) with.factor(plans[1]);  // tau of a rival may lie there
      with.prepare(which);
      gpu::synchronize();
      run(plans[v]);
      return error_of_result(with, which, pivots);
    });
  }
}

}  // namespace

// Complex ones, square, tall, in batches; column pivoting.
std::vector<std::string> kinds_set(bool quick) {
  if (quick)
    return {"geqrf_c64_m60_n40",      "ormqr_c128_m60_n40",   "orgqr_c64_m300_n20",    "gels_c128_m90_n40",
            "geqrf_c128_m16_n12_b20", "ormqr_c64_m24_n16_b6", "orgqr_c128_m24_n16_b6", "gels_c64_m24_n16_b6",
            "geqp3_f64_m60_n40",      "geqp3_f32_m40_n60",    "geqp3_c128_m60_n40"};
  return {"geqrf_c64_m4096_n4096",    "geqrf_c128_m4096_n4096", "ormqr_c64_m4096_n4096",     "ormqr_c128_m4096_n4096",
          "orgqr_c64_m4096_n4096",    "orgqr_c128_m4096_n4096", "gels_c64_m4096_n4096",      "gels_c128_m4096_n4096",
          "geqrf_c64_m200000_n64",    "geqrf_c128_m200000_n64", "gels_c128_m200000_n64",     "geqrf_c64_m64_n64_b1000",
          "geqrf_c128_m64_n64_b1000", "geqrf_c64_m8_n8_b10000", "geqrf_c128_m256_n128_b100", "gels_c64_m64_n32_b1000",
          "orgqr_c64_m64_n64_b1000",  "geqp3_f32_m1024_n1024",  "geqp3_f64_m1024_n1024",     "geqp3_f64_m100000_n128",
          "geqp3_f32_m4096_n4096",    "geqp3_f64_m4096_n4096",  "geqp3_c128_m1024_n1024"};
}

void check_kind_token(std::string_view token) {
  const strike::subject_name parsed = strike::parse_subject(token);
  const qr::problem what = qr::parse_token(parsed.token);
  const std::string name(token);
  if (!call_of(parsed.operation))
    throw invalid_argument_error(name + ": expected geqrf_…, ormqr_…, orgqr_…, gels_… or geqp3_…, got " + parsed.operation);
  if (parsed.operation == k_pivoted && what.batch > 1)
    throw invalid_argument_error(name + ": expected one matrix for column pivoting, got a batch");
  if (what.rows < what.columns && (parsed.operation == "gels" || parsed.operation == "orgqr"))
    throw invalid_argument_error(name + ": expected at least as many rows as columns, got fewer");
}

int kinds(const settings& wanted, const time_limit& limit) {
  tally seen;
  return each_kind(wanted.tokens.empty() ? kinds_set(wanted.quick) : wanted.tokens, limit, seen,
                   [&](const std::string& name, double seconds) {
                     const qr::problem what = qr::parse_token(strike::parse_subject(name).token);
                     const bool single = what.precision == precision::f32;
                     if (what.complex) {
                       single ? time_kind<std::complex<float>>(name, seconds, seen) : time_kind<std::complex<double>>(name, seconds, seen);
                     } else {
                       single ? time_kind<float>(name, seconds, seen) : time_kind<double>(name, seconds, seen);
                     }
                   });
}

}  // namespace ballast::gpu_check::factors
