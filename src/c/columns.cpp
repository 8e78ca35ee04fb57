// QR of block columns on a group, and ScaLAPACK's layout.
// Layer: interface.
#include <algorithm>
#include <complex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <ballast/qr_columns.hpp>
#include <ballast/qr_descriptor.hpp>

#include "c/handles.hpp"
#include "c/outputs.hpp"
#include "c/tensor.hpp"
#include "core/format.hpp"

namespace {

template <class T>
using column_factors = ballast::qr::column_factors<T>;

// The rows of the whole matrix: devices have all of them, as ranks do.
template <class T>
std::int64_t rows_of(const column_factors<T>& of) {
  return of.devices.empty() ? of.storage.rows() : of.devices.front().storage.rows;
}
// The columns of R and Q that a call returns: on devices all.
template <class T>
std::int64_t columns_of_r(const column_factors<T>& of) {
  return of.devices.empty() ? of.own.count() : of.own.columns;
}
template <class T>
std::int64_t columns_of_q(const column_factors<T>& of) {
  return of.devices.empty() ? of.q_columns().count() : std::min(rows_of(of), of.own.columns);
}

}  // namespace

struct ballast_column_factors : ballast::c::handle<ballast::c::kind::column_factors> {
  using any_factors = std::variant<column_factors<float>, column_factors<double>, column_factors<std::complex<float>>,
                                   column_factors<std::complex<double>>>;
  explicit ballast_column_factors(any_factors made) : value(std::move(made)) {
    token = std::visit(
        []<class T>(const column_factors<T>& each) {
          constexpr ballast::c::element type = ballast::c::element_of<T>;
          return ballast::qr::to_token(
              {ballast::c::precision_of_element(type), rows_of(each), each.own.columns, 1, ballast::c::is_complex(type)});
        },
        value);
  }
  any_factors value;
  std::string token;
};

namespace ballast::c {

namespace {

// Calls work(factors, T{}).
template <class Work>
void with_factors(const ballast_column_factors& of, Work&& work) {
  std::visit([&]<class T>(const column_factors<T>& from) { work(from, T{}); }, of.value);
}

// Calls work(T{}) for the type of numbers of a tensor.
template <class Work>
void with_type_of(const tensor& given, Work&& work) {
  if (!is_number(given.type)) given.expect(element::f64);
  switch (given.type) {
    case element::f32: return work(float());
    case element::c64: return work(std::complex<float>());
    case element::c128: return work(std::complex<double>());
    default: return work(double());
  }
}

execution where_for(const ballast_options* options) {
  return options == nullptr ? execution{} : where_of(options_for(options, algorithm::qr));
}

qr::process_grid grid_of(const ballast_process_grid* given) {
  const auto grid = read_struct(given, "grid");
  if (grid.by_columns != 0 && grid.by_columns != 1)
    throw invalid_argument_error(fmt::format("qr: grid: by_columns: expected 0 or 1, got {}", grid.by_columns));
  return {.rows = grid.rows, .columns = grid.columns, .by_columns = grid.by_columns == 1};
}

std::span<const int> numbers_of(const std::int32_t* desc) {
  static_assert(std::is_same_v<std::int32_t, int>);
  return {&output(desc, "desc"), 9};
}

std::string token_of(const tensor& given, const std::int32_t* desc) {
  if (desc == nullptr || !is_number(given.type)) return "qr";
  return qr::to_token({precision_of_element(given.type), desc[2], desc[3], 1, is_complex(given.type)});
}

// The frame of a member: work(factors, T{}, call) returns a report.
template <class Work>
std::int32_t member(const ballast_column_factors* factors, const ballast_call* call, ballast_report* report, ballast_error* error,
                    Work&& work) {
  return guarded(error, [&](frame& here) {
    const ballast_column_factors& of = needed(factors, "factors");
    here.problem = of.token;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    with_factors(of, [&]<class T>(const column_factors<T>& from, T) { fill(report, work(of, from, now)); });
  });
}

}  // namespace

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_block_columns(int64_t columns, int64_t block, int32_t ranks, int32_t rank, int64_t* count, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(count, "count");
    if (columns < 0 || block < 1 || ranks < 1 || rank < 0 || rank >= ranks)
      throw ballast::invalid_argument_error(ballast::fmt::format(
          "block_columns: expected columns of 0 or more in blocks of 1 or more, and a rank below the number of ranks, got {} in blocks of "
          "{}, rank {} of {}",
          columns, block, rank, ranks));
    *count = ballast::qr::block_columns{columns, block, ranks, rank}.count();
  });
}

int32_t ballast_qr_factor_columns(const DLTensor* A, int64_t block, const ballast_options* options, const ballast_call* call,
                                  ballast_column_factors** factors, ballast_report* report, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    output(factors, "factors") = nullptr;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast::execution where = where_for(options);
    const tensor given(A, {"qr", "A"});
    with_type_of(given, [&]<class T>(T) {
      column_factors<T> found = ballast::qr::factor_columns(matrix_of<const T>(given, where), block, where, now);
      ballast::report seen = found.report;
      *factors = new ballast_column_factors(std::move(found));
      fill(report, std::move(seen));
    });
  });
}

void ballast_column_factors_destroy(ballast_column_factors* factors) { destroy(factors); }

int32_t ballast_column_factors_shape(const ballast_column_factors* factors, int64_t* rows, int64_t* columns, int64_t* r_columns,
                                     int64_t* q_columns, ballast_error* error) {
  return guarded(error, [&](frame&) {
    with_factors(needed(factors, "factors"), [&]<class T>(const column_factors<T>& from, T) {
      if (rows != nullptr) *rows = rows_of(from);
      if (columns != nullptr) *columns = from.own.columns;
      if (r_columns != nullptr) *r_columns = columns_of_r(from);
      if (q_columns != nullptr) *q_columns = columns_of_q(from);
    });
  });
}

int32_t ballast_column_factors_r(const ballast_column_factors* factors, const DLTensor* R, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast_column_factors& of = needed(factors, "factors");
    here.problem = of.token;
    with_factors(of, [&]<class T>(const column_factors<T>& from, T) {
      const auto to = target_of<T>(tensor(R, {of.token, "R"}), std::min(rows_of(from), from.own.columns), columns_of_r(from));
      const ballast::matrix<T> made = from.r();
      copy<T>(made.view(), to);
    });
  });
}

int32_t ballast_column_factors_storage(const ballast_column_factors* factors, const DLTensor* A, const DLTensor* tau,
                                       ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast_column_factors& of = needed(factors, "factors");
    here.problem = of.token;
    with_factors(of, [&]<class T>(const column_factors<T>& from, T) {
      if (A != nullptr && !from.devices.empty())
        throw ballast::unsupported_error(of.token + ": A: expected factors of ranks for their storage, got those of devices");
      copy_storage(from, of.token, A, tau);
    });
  });
}

int32_t ballast_column_factors_q(const ballast_column_factors* factors, const DLTensor* Q, const ballast_call* call, ballast_report* report,
                                 ballast_error* error) {
  return member(factors, call, report, error,
                [&]<class T>(const ballast_column_factors& of, const column_factors<T>& from, const ballast::call& now) {
                  const auto to = target_of<T>(tensor(Q, {of.token, "Q"}), rows_of(from), columns_of_q(from));
                  ballast::qr::computed<T> made = from.q(now);
                  copy<T>(std::as_const(made.values).view(), to);
                  return std::move(made.report);
                });
}

int32_t ballast_column_factors_apply(const ballast_column_factors* factors, int32_t transpose, const DLTensor* C, const DLTensor* product,
                                     const ballast_call* call, ballast_report* report, ballast_error* error) {
  return member(factors, call, report, error,
                [&]<class T>(const ballast_column_factors& of, const column_factors<T>& from, const ballast::call& now) {
                  if (transpose != BALLAST_NO_TRANSPOSE && transpose != BALLAST_TRANSPOSE)
                    throw ballast::invalid_argument_error(
                        ballast::fmt::format("{}: transpose: expected 0 (no) or 1 (yes), got {}", of.token, transpose));
                  const auto operand = matrix_of<const T>(tensor(C, {of.token, "C"}), from.where, true);
                  const auto to = target_of<T>(tensor(product, {of.token, "product"}), rows_of(from), operand.columns, true);
                  ballast::qr::computed<T> made =
                      transpose == BALLAST_TRANSPOSE ? from.apply_transposed(operand, now) : from.apply(operand, now);
                  copy<T>(std::as_const(made.values).view(), to);
                  return std::move(made.report);
                });
}

int32_t ballast_column_factors_solve(const ballast_column_factors* factors, const DLTensor* B, const DLTensor* X, const ballast_call* call,
                                     ballast_report* report, ballast_error* error) {
  return member(factors, call, report, error,
                [&]<class T>(const ballast_column_factors& of, const column_factors<T>& from, const ballast::call& now) {
                  const auto right = matrix_of<const T>(tensor(B, {of.token, "B"}), from.where, true);
                  const auto to = target_of<T>(tensor(X, {of.token, "X"}), from.own.columns, right.columns, true);
                  ballast::qr::computed<T> made = from.solve(right, now);
                  copy<T>(std::as_const(made.values).view(), to);
                  return std::move(made.report);
                });
}

int32_t ballast_qr_to_block_columns(const DLTensor* local, const int32_t* desc, const ballast_process_grid* grid, int64_t block,
                                    const ballast_options* options, const DLTensor* columns, const ballast_call* call,
                                    ballast_report* report, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast::execution where = where_for(options);
    const tensor given(local, {"qr", "local"});
    here.poses(token_of(given, desc));
    const std::span<const int> numbers = numbers_of(desc);
    with_type_of(given, [&]<class T>(T) {
      const tensor to(columns, {here.problem, "columns"});
      ballast::qr::computed<T> made =
          ballast::qr::to_block_columns(elements_of<const T>(given, 1, where), numbers, grid_of(grid), block, where, now);
      copy<T>(std::as_const(made.values).view(), target_of<T>(to, made.values.rows(), made.values.columns()));
      fill(report, std::move(made.report));
    });
  });
}

int32_t ballast_qr_from_block_columns(const DLTensor* columns, int64_t block, const DLTensor* local, const int32_t* desc,
                                      const ballast_process_grid* grid, const ballast_options* options, const ballast_call* call,
                                      ballast_report* report, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast::execution where = where_for(options);
    const tensor given(columns, {"qr", "columns"});
    here.poses(token_of(given, desc));
    const std::span<const int> numbers = numbers_of(desc);
    with_type_of(given, [&]<class T>(T) {
      const tensor to(local, {here.problem, "local"});
      fill(report, ballast::qr::from_block_columns(matrix_of<const T>(given, where), block, elements_of<T>(to, 1, where), numbers,
                                                   grid_of(grid), where, now));
    });
  });
}
