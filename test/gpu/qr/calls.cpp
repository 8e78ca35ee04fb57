// Whole calls of QR: geqrf, ormqr, orgqr, Q and R, least squares, of one matrix and of batches; operands and results in device memory.
#include <algorithm>
#include <optional>

#include "calls.hpp"
#include "each_case.hpp"
#include "qr_stages.hpp"
#include "whole_calls.hpp"

namespace ballast::gpu_check::factors {
namespace {

// The calls of a problem. Applying and forming Q of the largest matrices would take most of the time.
std::vector<what_runs> calls_of(const qr::problem& what) {
  if (what.rows == what.columns && what.rows > 8192) return {what_runs::geqrf};
  if (what.batch > 1) return {what_runs::geqrf, what_runs::q_and_r, what_runs::gels};
  return {what_runs::geqrf, what_runs::ormqr, what_runs::orgqr, what_runs::q_and_r, what_runs::gels};
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
  return time_each_number(tokens, limit, "call", [&](auto zero, const std::string& token) {
    return time_calls<decltype(zero)>(token, limit.left() / static_cast<double>(left--));
  });
}

// The first call of this process: the device, the plan, the kernels, the call.
int first_call(const settings& wanted, const time_limit& limit) {
  if (wanted.tokens.size() != 1) throw invalid_argument_error("first_call: expected one TOKEN");
  const std::string& token = wanted.tokens[0];
  return time_each_number({token}, limit, "first call", [&](auto zero, const std::string&) {
    using T = decltype(zero);
    const operands<T> with(qr::parse_token(token), false);
    with.prepare(what_runs::geqrf);
    print_first_call({token, "geqrf"}, [&] { with.run(with.plan(protection::correct), what_runs::geqrf); });
    return 0;
  });
}

}  // namespace ballast::gpu_check::factors
