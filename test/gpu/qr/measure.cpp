// Measures speed: geqrf in device memory without and with protection, and cuSOLVER's two interfaces, alternating within one run; for some
// problems ormqr and orgqr, too. The stage paper times the scheme hybrid.
#include <array>
#include <memory>
#include <optional>

#include "../../../bench/gpu.hpp"
#include "each_case.hpp"
#include "nvidia.hpp"
#include "qr_stages.hpp"
#include "samples.hpp"

namespace ballast::gpu_check::factors {
namespace {

constexpr int k_rounds = 3;

// Returns whether Q is applied and formed, too.
bool applied_too(const qr::problem& what) { return what.rows == what.columns && (what.columns == 8192 || what.columns == 4096); }

// The plans without and with protection.
template <class T>
std::array<qr::plan<T>, 2> plans_for(const qr::problem& what) {
  const auto with = [&](protection level) { return qr::plan<T>(what, {.backend = backend::cuda, .protection = level}); };
  return {with(protection::off), with(protection::correct)};
}

// Returns 1 for a false alarm.
int alarms(const std::string& token, const report& seen) {
  if (seen.detected == 0) return 0;
  print_false_alarm(token, describe(seen));
  return 1;
}

// Times ormqr on a matrix of the factors' shape, which is the input, and orgqr. `a`: overwritten; `why`: the reason if there is no rival.
template <class T>
int time_q(const std::string& token, const std::array<qr::plan<T>, 2>& plans, const gpu::buffer& source, T* a, T* scalars, cusolver* rival,
           const std::string& why, const time_limit& limit) {
  static constexpr std::array names = {"off", "correct", "cusolver"};
  const qr::problem what = qr::parse_token(token);
  const index m = what.rows, n = what.columns, k = std::min(m, n);
  const std::span<T> tau(scalars, static_cast<std::size_t>(k));
  const std::span<const T> given = tau;
  int failed = 0;
  gpu::copy(a, source.data(), source.bytes());
  const call now{.stream = gpu::stream()};
  failed += alarms(token, plans[1].geqrf(column_major(a, m, n), tau, now));
  const gpu::buffer factors(source.bytes());
  gpu::copy(factors.data(), a, source.bytes());
  const T* const f = static_cast<const T*>(factors.data());
  for (const bool forms : {false, true}) {
    std::array<std::string, names.size()> refused;
    refused[2] = rival == nullptr ? why : refusal([&] {
      if (forms) rival->prepare_form(m, n, a, scalars);
      if (!forms) rival->prepare_apply(m, n, a, scalars);
    });
    const auto times = in_turn(
        names.size(), k_rounds, limit,
        [&](std::size_t which) {
          if (!refused[which].empty()) return false;
          gpu::copy(a, forms ? factors.data() : source.data(), source.bytes());
          gpu::synchronize();
          return true;
        },
        [&](std::size_t which) {
          if (which == 2) {
            refused[2] = refusal([&] {
              if (forms) rival->form(m, n, a, scalars);
              if (!forms) rival->apply(m, n, f, scalars, a);
            });
          } else if (forms) {
            failed += alarms(token, plans[which].orgqr(column_major(a, m, n), given, now));
          } else {
            failed += alarms(
                token, plans[which].ormqr(qr::side::left, qr::transpose::yes, column_major(f, m, n), given, column_major(a, m, n), now));
          }
          gpu::synchronize();
        },
        [](std::size_t) {});
    // Operation counts by LAPACK's convention.
    const auto dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k);
    const double flops = (what.complex ? 4 : 1) *
                         (forms ? 4 * dm * dn * dk - 2 * (dm + dn) * dk * dk + 4 * dk * dk * dk / 3 : 4 * dm * dn * dk - 2 * dn * dk * dk);
    for (std::size_t which = 0; which < names.size(); ++which)
      print_times({"factorization", token, forms ? "orgqr" : "ormqr", names[which]}, times[which], flops, refused[which]);
  }
  return failed;
}

template <class T>
int time(const std::string& token, const time_limit& limit) {
  const qr::problem what = qr::parse_token(token);
  if (what.batch > 1) return time_batch<T>(token, limit);
  const index m = what.rows, n = what.columns, k = std::min(m, n);
  int failed = 0;
  const gpu::buffer source(m * n * static_cast<index>(sizeof(T))), A(source.bytes()), tau(k * static_cast<index>(sizeof(T)));
  {
    const std::vector<T> values = matrix_of<T>(what, 11);
    gpu::copy(source.data(), values.data(), source.bytes());
    gpu::synchronize();
  }
  T* const a = static_cast<T*>(A.data());
  T* const scalars = static_cast<T*>(tau.data());
  static constexpr std::array names = {"off", "correct", "cusolver", "cusolver 64"};
  std::array<std::string, names.size()> refused;
  std::optional<cusolver> rival;
  std::string why = cusolver::why_not();
  if (why.empty()) why = refusal([&] { rival.emplace(); });
  refused[2] = refused[3] = why;
  if (rival) {
    refused[2] = refusal([&] { rival->prepare_run(m, n, a); });
    refused[3] = refusal([&] { rival->prepare_run_64(m, n, a, scalars); });
  }
  const std::array<qr::plan<T>, 2> plans = plans_for<T>(what);
  const auto ours = [&](const qr::plan<T>& plan) {
    const std::span<T> reflectors(scalars, static_cast<std::size_t>(k));
    failed += alarms(token, plan.geqrf(column_major(a, m, n), reflectors, {.stream = gpu::stream()}));
  };
  const auto times = in_turn(
      names.size(), k_rounds, limit,
      [&](std::size_t which) {
        if (!refused[which].empty()) return false;
        gpu::copy(A.data(), source.data(), A.bytes());
        gpu::synchronize();
        return true;
      },
      [&](std::size_t which) {
        if (which < 2) ours(plans[which]);
        if (which == 2) refused[2] = refusal([&] { rival->run(m, n, a, scalars); });
        if (which == 3) refused[3] = refusal([&] { rival->run_64(m, n, a, scalars); });
        gpu::synchronize();
      },
      [](std::size_t) {});
  for (std::size_t which = 0; which < names.size(); ++which)
    print_times({"factorization", token, "geqrf", names[which]}, times[which], flops_of(what), refused[which]);
  if (applied_too(what)) failed += time_q(token, plans, source, a, scalars, rival ? &*rival : nullptr, why, limit);
  return failed;
}

}  // namespace

int bench(const settings& wanted, const time_limit& limit) {
  return time_each_number(wanted.tokens.empty() ? timed_set(wanted.quick) : wanted.tokens, limit, "factorization",
                          [&](auto zero, const std::string& token) { return time<decltype(zero)>(token, limit); });
}

}  // namespace ballast::gpu_check::factors
