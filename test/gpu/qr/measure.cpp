// Measures speed: geqrf in device memory without and with protection, and cuSOLVER's two interfaces, alternating within one run; for some
// problems ormqr and orgqr, too. The stage paper times the scheme hybrid.
#include <array>
#include <memory>
#include <optional>

#include "../../../bench/gpu.hpp"
#include "cuda/system/library.hpp"
#include "each_case.hpp"
#include "qr_stages.hpp"
#include "samples.hpp"

namespace ballast::gpu_check::factors {
namespace {

namespace gpu = bench::gpu;
using index = std::int64_t;

constexpr int k_rounds = 3;

// cuSOLVER's geqrf, ormqr and orgqr. Source: cuSOLVER API reference, CUDA 12 and 13.
class cusolver {
 public:
  // Returns the reason why it cannot be used; empty if it can.
  static std::string why_not() { return library().why; }

  cusolver() {
    check(library().create(&handle_), "cusolverDnCreate");
    check(library().set_stream(handle_, gpu::stream()), "cusolverDnSetStream");
    check(library().create_params(&params_), "cusolverDnCreateParams");
    info_ = gpu::buffer(4);
  }
  cusolver(const cusolver&) = delete;
  cusolver& operator=(const cusolver&) = delete;
  ~cusolver() {
    library().destroy_params(params_);
    library().destroy(handle_);
  }

  // Run one factorization with the interface of 32-bit sizes, and the operations on its factors; a prepare function first allocates the
  // workspace of each.
  template <class T>
  void prepare_run(index m, index n, T* A) {
    int elements = 0;
    check(routines<T>().buffer(handle_, static_cast<int>(m), static_cast<int>(n), A, static_cast<int>(m), &elements), "geqrf_bufferSize");
    make_room<T>(elements);
  }
  template <class T>
  void prepare_apply(index m, index n, T* A, T* tau) {
    int elements = 0;
    check(routines<T>().q_buffer(handle_, 0, 1, static_cast<int>(m), static_cast<int>(n), static_cast<int>(std::min(m, n)), A,
                                 static_cast<int>(m), tau, A, static_cast<int>(m), &elements),
          "ormqr_bufferSize");
    make_room<T>(elements);
  }
  template <class T>
  void prepare_form(index m, index n, T* A, T* tau) {
    int elements = 0;
    check(routines<T>().g_buffer(handle_, static_cast<int>(m), static_cast<int>(n), static_cast<int>(n), A, static_cast<int>(m), tau,
                                 &elements),
          "orgqr_bufferSize");
    make_room<T>(elements);
  }
  template <class T>
  void prepare_run_64(index m, index n, T* A, T* tau) {
    std::size_t on_device = 0, on_host = 0;
    check(library().x_buffer(handle_, params_, m, n, type<T>, A, m, type<T>, tau, type<T>, &on_device, &on_host), "Xgeqrf_bufferSize");
    large_ = gpu::buffer(std::max<index>(1, static_cast<index>(on_device)));
    host_.resize(std::max<std::size_t>(1, on_host));
    on_host_ = on_host;
    on_device_ = on_device;
  }
  template <class T>
  void run(index m, index n, T* A, T* tau) {
    check(routines<T>().geqrf(handle_, static_cast<int>(m), static_cast<int>(n), A, static_cast<int>(m), tau,
                              static_cast<T*>(small_.data()), elements_, static_cast<int*>(info_.data())),
          "geqrf");
  }
  // C ← QᵀC, where C is m × n like the factors.
  template <class T>
  void apply(index m, index n, const T* A, const T* tau, T* C) {
    check(routines<T>().ormqr(handle_, 0, 1, static_cast<int>(m), static_cast<int>(n), static_cast<int>(std::min(m, n)), A,
                              static_cast<int>(m), tau, C, static_cast<int>(m), static_cast<T*>(small_.data()), elements_,
                              static_cast<int*>(info_.data())),
          "ormqr");
  }
  template <class T>
  void form(index m, index n, T* A, const T* tau) {
    check(routines<T>().orgqr(handle_, static_cast<int>(m), static_cast<int>(n), static_cast<int>(n), A, static_cast<int>(m), tau,
                              static_cast<T*>(small_.data()), elements_, static_cast<int*>(info_.data())),
          "orgqr");
  }
  template <class T>
  void run_64(index m, index n, T* A, T* tau) {
    check(library().x_geqrf(handle_, params_, m, n, type<T>, A, m, type<T>, tau, type<T>, large_.data(), on_device_, host_.data(), on_host_,
                            static_cast<int*>(info_.data())),
          "Xgeqrf");
  }

 private:
  using status = int;
  using handle = void*;
  using parameters = void*;
  template <class T>
  static constexpr int type = sizeof(T) == 4 ? 0 : 1;  // CUDA_R_32F, CUDA_R_64F
  template <class T>
  struct functions {
    status (*buffer)(handle, int, int, T*, int, int*);
    status (*geqrf)(handle, int, int, T*, int, T*, T*, int, int*);
    // CUBLAS_SIDE_LEFT is 0, CUBLAS_OP_T 1.
    status (*q_buffer)(handle, int, int, int, int, int, const T*, int, const T*, const T*, int, int*);
    status (*ormqr)(handle, int, int, int, int, int, const T*, int, const T*, T*, int, T*, int, int*);
    status (*g_buffer)(handle, int, int, int, const T*, int, const T*, int*);
    status (*orgqr)(handle, int, int, int, T*, int, const T*, T*, int, int*);
  };
  struct bound {
    std::string why;
    status (*create)(handle*);
    status (*destroy)(handle);
    status (*set_stream)(handle, void*);
    status (*create_params)(parameters*);
    status (*destroy_params)(parameters);
    functions<float> f32;
    functions<double> f64;
    status (*x_buffer)(handle, parameters, index, index, int, const void*, index, int, const void*, int, std::size_t*, std::size_t*);
    status (*x_geqrf)(handle, parameters, index, index, int, void*, index, int, void*, int, void*, std::size_t, void*, std::size_t, int*);
  };
  template <class T>
  static const functions<T>& routines() {
    if constexpr (sizeof(T) == 4) {
      return library().f32;
    } else {
      return library().f64;
    }
  }
  static const bound& library() {
    static const bound made = [] {
      bound all{};
      const ballast::cuda::opened_library opened = ballast::cuda::open_library(ballast::cuda::k_cusolver_library);
      all.why = opened.why;
      if (opened.handle == nullptr) return all;
      const auto find = [&](auto& target, const char* name) {
        if (!ballast::cuda::find_function(opened.handle, name, target) && all.why.empty()) all.why = std::string("cuSOLVER lacks ") + name;
      };
      find(all.create, "cusolverDnCreate");
      find(all.destroy, "cusolverDnDestroy");
      find(all.set_stream, "cusolverDnSetStream");
      find(all.create_params, "cusolverDnCreateParams");
      find(all.destroy_params, "cusolverDnDestroyParams");
      find(all.f32.buffer, "cusolverDnSgeqrf_bufferSize");
      find(all.f32.geqrf, "cusolverDnSgeqrf");
      find(all.f64.buffer, "cusolverDnDgeqrf_bufferSize");
      find(all.f64.geqrf, "cusolverDnDgeqrf");
      find(all.f32.q_buffer, "cusolverDnSormqr_bufferSize");
      find(all.f32.ormqr, "cusolverDnSormqr");
      find(all.f32.g_buffer, "cusolverDnSorgqr_bufferSize");
      find(all.f32.orgqr, "cusolverDnSorgqr");
      find(all.f64.q_buffer, "cusolverDnDormqr_bufferSize");
      find(all.f64.ormqr, "cusolverDnDormqr");
      find(all.f64.g_buffer, "cusolverDnDorgqr_bufferSize");
      find(all.f64.orgqr, "cusolverDnDorgqr");
      find(all.x_buffer, "cusolverDnXgeqrf_bufferSize");
      find(all.x_geqrf, "cusolverDnXgeqrf");
      return all;
    }();
    return made;
  }
  template <class T>
  void make_room(int elements) {
    if (small_.data() == nullptr || elements > elements_)
      small_ = gpu::buffer(std::max<index>(1, index{elements} * static_cast<index>(sizeof(T))));
    elements_ = std::max(elements_, elements);
  }
  static void check(status got, const char* call) {
    if (got != 0) throw error(std::string("cuSOLVER: ") + call + ": status " + std::to_string(got));
  }

  handle handle_ = nullptr;
  parameters params_ = nullptr;
  gpu::buffer small_, large_, info_;
  std::vector<std::byte> host_;
  int elements_ = 0;
  std::size_t on_device_ = 0, on_host_ = 0;
};

// Runs the rival's work. A refusal appears in its row and does not end the problem. Returns "" if the work was done.
template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
    return {};
  } catch (const std::exception& e) {
    return e.what();
  }
}

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
    const double flops = forms ? 4 * dm * dn * dk - 2 * (dm + dn) * dk * dk + 4 * dk * dk * dk / 3 : 4 * dm * dn * dk - 2 * dn * dk * dk;
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
  return time_each(wanted.tokens.empty() ? timed_set(wanted.quick) : wanted.tokens, qr::parse_token, limit, "factorization",
                   [&](auto zero, const std::string& token) { return time<decltype(zero)>(token, limit); });
}

}  // namespace ballast::gpu_check::factors
