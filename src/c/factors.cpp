// Factorizations that own their storage, in host memory.
// Layer: interface.
#include <complex>
#include <string>
#include <utility>
#include <variant>

#include "c/handles.hpp"
#include "c/tensor.hpp"
#include "core/extent.hpp"
#include "core/format.hpp"

namespace {

std::string token_of(ballast::c::element type, std::int64_t rows, std::int64_t columns) {
  return ballast::qr::to_token({ballast::c::precision_of_element(type), rows, columns, 1, ballast::c::is_complex(type)});
}

}  // namespace

struct ballast_factors : ballast::c::handle<ballast::c::kind::factors> {
  using any_factors = std::variant<ballast::qr::factors<float>, ballast::qr::factors<double>, ballast::qr::factors<std::complex<float>>,
                                   ballast::qr::factors<std::complex<double>>>;
  ballast_factors(any_factors made, const ballast::execution& at) : value(std::move(made)), where(at) {
    token = std::visit(
        [](const auto& each) {
          using T = typename std::decay_t<decltype(each.tau)>::value_type;
          return token_of(ballast::c::element_of<T>, each.storage.rows(), each.storage.columns());
        },
        value);
  }
  any_factors value;
  ballast::execution where;
  std::string token;
};

namespace ballast::c {

namespace {

// A tensor in host memory with this many rows and columns. A tensor of one axis is one column.
template <class T>
matrix_view<T> target_of(const tensor& of, std::int64_t rows, std::int64_t columns, bool column = false) {
  const auto refuse = [&](const std::string& what) {
    throw invalid_argument_error(fmt::format("{}: {}: {}", of.as.problem, of.as.name, what));
  };
  const matrix_view<T> made = matrix_of<T>(of, {}, column);
  if (made.rows != rows || made.columns != columns)
    refuse(fmt::format("expected {} × {}, got {} × {}", rows, columns, made.rows, made.columns));
  if (of.on_device()) refuse("expected host memory, got that of a device");
  if (!core::extent_fits(made) || !core::elements_apart(made))
    refuse(fmt::format("expected strides that keep the elements apart and within 63 bits of address, got {} and {}", made.row_stride,
                       made.column_stride));
  return made;
}

template <class T>
void copy(matrix_view<const T> from, matrix_view<T> to) {
  for (std::int64_t j = 0; j < to.columns; ++j) {
    for (std::int64_t i = 0; i < to.rows; ++i) to(i, j) = from(i, j);
  }
}

// Calls work(factors<T>, T{}).
template <class Work>
void with_factors(const ballast_factors& of, Work&& work) {
  std::visit([&]<class T>(const qr::factors<T>& from) { work(from, T{}); }, of.value);
}

}  // namespace

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_qr_factor(const DLTensor* A, const ballast_options* options, const ballast_call* call, ballast_factors** factors,
                          ballast_report* report, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    output(factors, "factors") = nullptr;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast::execution where = options == nullptr ? ballast::execution{} : options_for(options, algorithm::qr).where;
    const tensor given(A, {"qr", "A"});
    if (!is_number(given.type)) given.expect(element::f64);
    given.expect_axes(2);
    here.poses(token_of(given.type, given.length[0], given.length[1]));
    const auto made = [&]<class T>(T) {
      auto found = ballast::qr::factor(matrix_of<const T>(given, where), where, now);
      ballast::report seen = found.report;
      *factors = new ballast_factors(std::move(found), where);
      fill(report, std::move(seen));
    };
    switch (given.type) {
      case element::f32: return made(float());
      case element::c64: return made(std::complex<float>());
      case element::c128: return made(std::complex<double>());
      default: return made(double());
    }
  });
}

void ballast_factors_destroy(ballast_factors* factors) { destroy(factors); }

int32_t ballast_factors_r(const ballast_factors* factors, const DLTensor* R, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast_factors& of = needed(factors, "factors");
    here.problem = of.token;
    with_factors(of, [&]<class T>(const ballast::qr::factors<T>& from, T) {
      const std::int64_t rows = std::min(from.storage.rows(), from.storage.columns());
      const auto to = target_of<T>(tensor(R, {of.token, "R"}), rows, from.storage.columns());
      const ballast::matrix<T> made = from.r();
      copy<T>(made.view(), to);
    });
  });
}

int32_t ballast_factors_storage(const ballast_factors* factors, const DLTensor* A, const DLTensor* tau, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast_factors& of = needed(factors, "factors");
    here.problem = of.token;
    with_factors(of, [&]<class T>(const ballast::qr::factors<T>& from, T) {
      const auto count = static_cast<std::int64_t>(from.tau.size());
      ballast::matrix_view<T> matrix, scalars;
      if (A != nullptr) matrix = target_of<T>(tensor(A, {of.token, "A"}), from.storage.rows(), from.storage.columns());
      if (tau != nullptr) scalars = target_of<T>(tensor(tau, {of.token, "tau"}), count, 1, true);
      copy<T>(from.storage.view(), matrix);
      copy<T>(ballast::column_major(from.tau.data(), count, 1), scalars);
    });
  });
}

int32_t ballast_factors_q(const ballast_factors* factors, const DLTensor* Q, const ballast_call* call, ballast_report* report,
                          ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast_factors& of = needed(factors, "factors");
    here.problem = of.token;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    with_factors(of, [&]<class T>(const ballast::qr::factors<T>& from, T) {
      const std::int64_t columns = std::min(from.storage.rows(), from.storage.columns());
      const auto to = target_of<T>(tensor(Q, {of.token, "Q"}), from.storage.rows(), columns);
      ballast::qr::computed<T> made = from.q(of.where, now);
      copy<T>(std::as_const(made.values).view(), to);
      fill(report, std::move(made.report));
    });
  });
}

int32_t ballast_factors_solve(const ballast_factors* factors, const DLTensor* B, const DLTensor* X, const ballast_call* call,
                              ballast_report* report, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast_factors& of = needed(factors, "factors");
    here.problem = of.token;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    with_factors(of, [&]<class T>(const ballast::qr::factors<T>& from, T) {
      const auto right = matrix_of<const T>(tensor(B, {of.token, "B"}), of.where, true);
      const auto to = target_of<T>(tensor(X, {of.token, "X"}), from.storage.columns(), right.columns, true);
      ballast::qr::computed<T> made = from.solve(right, of.where, now);
      copy<T>(std::as_const(made.values).view(), to);
      fill(report, std::move(made.report));
    });
  });
}
