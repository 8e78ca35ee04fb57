// Plans of convolutions: the division into blocks, checks of the arguments of each call.
#include "fft/api/convolution.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "core/format.hpp"
#include "core/token.hpp"
#include "cuda/call/capture.hpp"
#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"
#include "fft/api/plan.hpp"
#include "fft/problem.hpp"
#include "fft/sites.hpp"
#include "fft/tables/block_division.hpp"
#include "inject/injector.hpp"
#include "run/call_scope.hpp"
#include "run/dispatch.hpp"

namespace ballast::fft {

inline namespace abi_1 {

std::string_view to_string(convolution_mode value) noexcept {
  switch (value) {
    case convolution_mode::full: return "full";
    case convolution_mode::same: return "same";
    case convolution_mode::valid: return "valid";
  }
  return "?";
}

std::string to_token(const convolution_problem& value) {
  return fmt::format("{}_{}_{}_n{}_m{}_{}", value.correlate ? "correlate" : "convolve", value.complex ? "complex" : "real",
                     to_string(value.precision), core::join(value.first, "x"), core::join(value.second, "x"), to_string(value.mode));
}

namespace {

std::shared_ptr<convolution::implementation> prepare_convolution(convolution_problem problem, const execution& where,
                                                                 const std::string& token) {
  auto made = std::make_shared<convolution::implementation>();
  made->token = token;
  const std::size_t rank = problem.first.size();
  made->swapped = points_of(problem.second) > points_of(problem.first);
  made->signal = made->swapped ? problem.second : problem.first;
  made->kernel = made->swapped ? problem.first : problem.second;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t n = problem.first[i], m = problem.second[i];
    switch (problem.mode) {
      case convolution_mode::full:
        made->out_shape.push_back(n + m - 1);
        made->out_first.push_back(0);
        break;
      case convolution_mode::same:
        made->out_shape.push_back(n);
        made->out_first.push_back((m - 1) / 2);
        break;
      case convolution_mode::valid:
        made->out_shape.push_back(std::abs(n - m) + 1);
        made->out_first.push_back(std::min(n, m) - 1);
        break;
    }
    made->padded.push_back(fast_length(n + m - 1));
  }
  made->step = made->signal[0];
  if (rank == 1) {
    const block_division by = divide(made->signal[0], made->kernel[0]);
    made->padded = {by.length};
    made->step = by.step;
    made->blocks = by.blocks;
  }
  constexpr std::int64_t k_together = 1 << 17;  // points: a group stays in the cache of a core
  made->group = std::clamp<std::int64_t>(k_together / made->points(), 1, made->blocks);
  run::settings how = run::settings_of(where);
  // Operands lie on the host: a device is for those who ask for it.
  if (how.backend == ballast::backend::automatic) how.backend = run::host_backend();
  made->backend = run::choose_backend(how, token);
  const std::vector<std::string_view> known =
      made->backend == ballast::backend::cuda ? cuda::schemes() : std::vector<std::string_view>{"verify_before_store"};
  made->scheme = run::choose_scheme(how, known.front(), known, token);
  const bool protect = how.protection != protection::off;
  if (made->backend == ballast::backend::cuda) {
    cuda::convolution_on_device all{.precision = problem.precision,
                                    .complex = problem.complex,
                                    .signal_reversed = problem.correlate && made->swapped,
                                    .kernel_reversed = problem.correlate && !made->swapped,
                                    .axes = {},
                                    .protect = protect,
                                    .scheme = std::string(made->scheme.view())};
    for (std::size_t i = 0; i < rank; ++i) all.axes.push_back({made->signal[i], made->kernel[i], made->out_first[i], made->out_shape[i]});
    made->on_device = cuda::make_device_convolution(all);
    made->problem = std::move(problem);
    made->where = where;
    return made;
  }
  fft::problem lines{.kind = problem.complex ? kind::c2c : kind::r2c, .precision = problem.precision, .shape = made->padded};
  made->of_kernel = make_work(made->backend, describe(lines), lines.precision, protect, 0, made->scheme.view());
  lines.batch = made->group;
  made->forward = make_work(made->backend, describe(lines), lines.precision, protect, 0, made->scheme.view());
  if (!problem.complex) lines.kind = kind::c2r;
  const array_problem back = describe(lines);
  made->backward = make_work(made->backend, back, lines.precision, protect, 0, made->scheme.view());
  if (protect && problem.precision == precision::f32) made->powers.for_f32 = make_circle_powers<double>(made->padded);
  if (protect && problem.precision == precision::f64) made->powers.for_f64 = make_circle_powers<long double>(made->padded);
  made->scale = norm_factor(back, norm::backward, direction::inverse);
  made->problem = std::move(problem);
  made->where = where;
  return made;
}

}  // namespace

convolution::convolution(convolution_problem problem, const execution& where) {
  const std::string token = to_token(problem);
  const auto refuse = [&](const std::string& what) { throw invalid_argument_error(token + ": " + what); };
  if (problem.first.empty()) refuse("first: expected at least one length, got none");
  if (problem.first.size() != problem.second.size())
    refuse(fmt::format("expected operands of the same rank, got {} and {}", problem.first.size(), problem.second.size()));
  constexpr std::int64_t k_most = std::int64_t{1} << 40;  // points of the full result, and of any length
  std::int64_t points = 1, padded = 1;
  for (std::size_t i = 0; i < problem.first.size(); ++i) {
    const std::int64_t n = problem.first[i], m = problem.second[i];
    if (n < 1 || m < 1) refuse(fmt::format("expected lengths of at least 1, got {} and {}", n, m));
    if (n > k_most || m > k_most || __builtin_mul_overflow(points, n + m - 1, &points) || points > k_most ||
        __builtin_mul_overflow(padded, fast_length(n + m - 1), &padded))
      refuse("expected at most 2^40 points of the full result, got more");
  }
  implementation_ = run::in_call(nullptr, where.device, token, [&] {
    run::check_protection(where, token, false);
    return run::make_sampled(where, token, [&](const execution& own) { return prepare_convolution(problem, own, token); });
  });
}

convolution::~convolution() = default;
convolution::convolution(const convolution&) = default;
convolution::convolution(convolution&&) noexcept = default;
convolution& convolution::operator=(const convolution&) = default;
convolution& convolution::operator=(convolution&&) noexcept = default;

const convolution::implementation& convolution::made() const {
  if (implementation_ == nullptr) throw invalid_argument_error("fft::convolution: expected a plan, got one that was moved from");
  return *implementation_;
}

const convolution_problem& convolution::problem() const { return made().problem; }
const std::vector<std::int64_t>& convolution::output_shape() const { return made().out_shape; }
ballast::backend convolution::backend() const { return made().backend; }

namespace {

template <class Element>
report execute(const convolution::implementation& plan, std::span<const Element> first, std::span<const Element> second,
               std::span<Element> out, const call& now) {
  constexpr bool complex = !std::is_floating_point_v<Element>;
  using T = typename std::conditional_t<complex, Element, std::complex<Element>>::value_type;
  const convolution_problem& problem = plan.problem;
  const auto refuse = [&](const std::string& what) { throw invalid_argument_error(fmt::format("{}: {}", plan.token.view(), what)); };
  if (problem.complex != complex || (problem.precision == precision::f32) != (sizeof(T) == 4))
    refuse(fmt::format("expected {} numbers in {}, got {} ones in {}", problem.complex ? "complex" : "real", to_string(problem.precision),
                       complex ? "complex" : "real", sizeof(T) == 4 ? "f32" : "f64"));
  const auto check = [&](const void* data, std::size_t count, const std::vector<std::int64_t>& shape, const char* name) {
    if (count != static_cast<std::size_t>(points_of(shape)))
      refuse(fmt::format("{}: expected {} elements, got {}", name, points_of(shape), count));
    if (data == nullptr) refuse(fmt::format("{}: expected data, got a null pointer", name));
    const auto where = ballast::cuda::residence_of(data);
    // If a kernel reads an element from an address that is no multiple of its size, the CUDA context of the application is lost.
    const std::uintptr_t beyond = reinterpret_cast<std::uintptr_t>(data) % sizeof(Element);
    if (where != ballast::cuda::residence::host && beyond != 0)
      refuse(fmt::format("{}: expected device memory at a multiple of {} bytes, an element's size, got an address {} bytes behind one",
                         name, sizeof(Element), beyond));
    if (plan.on_device == nullptr && where != ballast::cuda::residence::host)
      throw unsupported_error(fmt::format("{}: {}: expected host memory, got {} memory", plan.token.view(), name,
                                          where == ballast::cuda::residence::device ? "device" : "managed"));
  };
  check(first.data(), first.size(), problem.first, "first");
  check(second.data(), second.size(), problem.second, "second");
  check(out.data(), out.size(), plan.out_shape, "out");
  const auto overlaps = [&](std::span<const Element> in) {
    return std::less<>()(in.data(), out.data() + out.size()) && std::less<>()(out.data(), in.data() + in.size());
  };
  if (overlaps(first) || overlaps(second)) refuse("expected out not to overlap the operands, got an overlap");
  return run::in_call(&plan.memory, plan.where.device, plan.token, [&] {
    if (plan.backend == ballast::backend::cuda) ballast::cuda::refuse_capture(now.stream, plan.token);
    const convolution::implementation& of = plan.next();
    const run::settings how = run::settings_of(of.where, now);
    if (of.backend == ballast::backend::cuda) {
      ballast::cuda::current_device()->synchronize(how.stream);  // earlier work on the stream may still write pinned operands
    }
    inject::active_injector injector(how.faults, site::table());
    run::recorder seen(of.token, of.backend, of.scheme, how, injector);
    if (of.on_device != nullptr) {
      of.on_device->run(of.swapped ? second.data() : first.data(), of.swapped ? first.data() : second.data(), out.data(), how, seen,
                        injector);
    } else {
      run_convolution<T>({of, reinterpret_cast<const T*>(first.data()), reinterpret_cast<const T*>(second.data()),
                          reinterpret_cast<T*>(out.data()), how, seen, injector});
    }
    return seen.finish();
  });
}

}  // namespace

report convolution::run(std::span<const float> first, std::span<const float> second, std::span<float> out, const call& now) const {
  return execute(made(), first, second, out, now);
}
report convolution::run(std::span<const double> first, std::span<const double> second, std::span<double> out, const call& now) const {
  return execute(made(), first, second, out, now);
}
report convolution::run(std::span<const std::complex<float>> first, std::span<const std::complex<float>> second,
                        std::span<std::complex<float>> out, const call& now) const {
  return execute(made(), first, second, out, now);
}
report convolution::run(std::span<const std::complex<double>> first, std::span<const std::complex<double>> second,
                        std::span<std::complex<double>> out, const call& now) const {
  return execute(made(), first, second, out, now);
}

}  // namespace abi_1
}  // namespace ballast::fft
