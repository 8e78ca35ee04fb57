// Measures the speed of batches: geqrf of many matrices in device memory without and with protection, and cuBLAS's batched geqrf,
// alternating within one run.
#include <algorithm>
#include <array>
#include <complex>
#include <optional>

#include "../../../bench/gpu.hpp"
#include "each_case.hpp"
#include "nvidia.hpp"
#include "output.hpp"
#include "qr_stages.hpp"
#include "samples.hpp"

namespace ballast::gpu_check::factors {
namespace {

constexpr int k_batch_rounds = 7;

}  // namespace

template <class T>
int time_batch(const std::string& token, const time_limit& limit) {
  const qr::problem what = qr::parse_token(token);
  const index k = std::min(what.rows, what.columns) * what.batch;
  int failed = 0;
  const auto plan_with = [&](protection level) { return qr::plan<T>(what, {.backend = backend::cuda, .protection = level}); };
  const std::array plans{plan_with(protection::off), plan_with(protection::correct)};
  const gpu::buffer room(std::max<index>(256, plans[0].workspace_bytes(qr::operation::geqrf)));
  const gpu::buffer source(what.rows * what.columns * what.batch * static_cast<index>(sizeof(T))), A(source.bytes()),
      tau(k * static_cast<index>(sizeof(T)));
  {
    const std::vector<T> values = matrix_of<T>(what, 11);
    gpu::copy(source.data(), values.data(), source.bytes());
    gpu::synchronize();
  }
  T* const a = static_cast<T*>(A.data());
  T* const scalars = static_cast<T*>(tau.data());
  std::optional<cublas_batched> rival;
  const std::string why = cublas_batched::why_not();
  if (why.empty()) rival.emplace(what, a, scalars);
  const matrix_batch_view<T> view = batch_of(column_major(a, what.rows, what.columns), what.batch);
  const std::span<std::byte> workspace(static_cast<std::byte*>(room.data()), static_cast<std::size_t>(room.bytes()));
  // Enqueues and waits; the report is read after the clock stops, like in a program that continues with other work.
  const auto ours = [&](const qr::plan<T>& plan) {
    return plan.enqueue_geqrf(view, std::span<T>(scalars, static_cast<std::size_t>(k)), {.stream = gpu::stream(), .workspace = workspace});
  };
  static constexpr std::array names = {"off", "correct", "cublas batched"};
  std::optional<pending_report> pending;
  const auto times = in_turn(
      names.size(), k_batch_rounds, limit,
      [&](std::size_t which) {
        if (which == 2 && !rival) return false;
        gpu::copy(A.data(), source.data(), A.bytes());
        gpu::synchronize();
        return true;
      },
      [&](std::size_t which) {
        if (which == 2) {
          rival->run(a);
        } else {
          pending.emplace(ours(plans[which]));
        }
        gpu::synchronize();
      },
      [&](std::size_t) {
        if (!pending) return;
        const report seen = pending->get();
        pending.reset();
        if (seen.detected == 0) return;
        print_false_alarm(token, describe(seen));
        ++failed;
      });
  for (std::size_t which = 0; which < names.size(); ++which)
    print_times({"factorization", token, "geqrf", names[which]}, times[which], flops_of(what), which == 2 ? why : "");
  return failed;
}

template int time_batch<float>(const std::string&, const time_limit&);
template int time_batch<double>(const std::string&, const time_limit&);
template int time_batch<std::complex<float>>(const std::string&, const time_limit&);
template int time_batch<std::complex<double>>(const std::string&, const time_limit&);

}  // namespace ballast::gpu_check::factors
