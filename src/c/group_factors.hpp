// QR's factors on a group as objects in C: what those of block columns and those of a grid have alike.
// Layer: interface.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>
#include <ballast/qr_columns.hpp>
#include <ballast/qr_descriptor.hpp>
#include <ballast/qr_grid.hpp>

#include "c/handles.hpp"
#include "c/outputs.hpp"
#include "c/tensor.hpp"
#include "core/format.hpp"

namespace ballast::c {

// The sizes of the whole matrix, and of the results that a call returns.
struct factor_sizes {
  std::int64_t m = 0, n = 0;
  std::int64_t rows = 0;  // those of Q and of products
  std::int64_t r_rows = 0, r_columns = 0, q_columns = 0;
  std::int64_t x_rows = 0;  // those of solutions
};

// On devices results are whole.
template <class T>
factor_sizes sizes_of(const qr::column_factors<T>& of) {
  const bool whole = !of.devices.empty();
  const std::int64_t m = whole ? of.devices.front().storage.rows : of.storage.rows(), n = of.own.columns, k = std::min(m, n);
  return {m, n, m, k, whole ? n : of.own.count(), whole ? k : of.q_columns().count(), n};
}

template <class T>
factor_sizes sizes_of(const qr::grid_factors<T>& of) {
  const std::int64_t m = of.desc[2], n = of.desc[3], k = std::min(m, n);
  const qr::layout_part own = qr::part_of_layout(of.desc, of.grid, of.rank), square = own.leading(k, k);
  const std::int64_t below = square.rows.count();  // least squares have m >= n, so X has the rows of R
  return {m, n, own.rows.count(), below, own.columns.count(), square.columns.count(), below};
}

template <template <class> class Factors, kind Kind>
struct group_factors : handle<Kind> {
  template <class T>
  explicit group_factors(Factors<T> made) : value(std::move(made)) {
    const factor_sizes sizes = sizes_of(std::get<Factors<T>>(value));
    token = qr::to_token({precision_of_element(element_of<T>), sizes.m, sizes.n, 1, is_complex(element_of<T>)});
  }
  std::variant<Factors<float>, Factors<double>, Factors<std::complex<float>>, Factors<std::complex<double>>> value;
  std::string token;
};

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

inline execution where_for(const ballast_options* options) {
  return options == nullptr ? execution{} : where_of(options_for(options, algorithm::qr));
}

inline qr::process_grid grid_of(const ballast_process_grid* given) {
  const auto grid = read_struct(given, "grid");
  if (grid.by_columns != 0 && grid.by_columns != 1)
    throw invalid_argument_error(fmt::format("qr: grid: by_columns: expected 0 or 1, got {}", grid.by_columns));
  return {.rows = grid.rows, .columns = grid.columns, .by_columns = grid.by_columns == 1};
}

inline std::span<const int> numbers_of(const std::int32_t* desc) {
  static_assert(std::is_same_v<std::int32_t, int>);
  return {&output(desc, "desc"), 9};
}

inline std::string token_of(const tensor& given, const std::int32_t* desc) {
  if (desc == nullptr || !is_number(given.type)) return "qr";
  return qr::to_token({precision_of_element(given.type), desc[2], desc[3], 1, is_complex(given.type)});
}

// Parts of a layout are read and written where they lie, by the host. Throws unsupported_error for memory of a device.
inline const tensor& in_host_memory(const tensor& given) {
  if (given.on_device())
    throw unsupported_error(fmt::format("{}: {}: expected host memory, got that of a device", given.as.problem, given.as.name));
  return given;
}

// Stores factors that were made, and their report.
template <class Handle, class Factors>
void keep(Factors&& found, Handle** factors, ballast_report* report) {
  ballast::report seen = found.report;
  *factors = new Handle(std::forward<Factors>(found));
  fill(report, std::move(seen));
}

// The frame of a member without a report: work(factors, its token, their sizes).
template <class Handle, class Work>
std::int32_t in_factors(const Handle* factors, ballast_error* error, Work&& work) {
  return guarded(error, [&](frame& here) {
    const Handle& of = needed(factors, "factors");
    here.problem = of.token;
    std::visit([&](const auto& from) { work(from, of.token, sizes_of(from)); }, of.value);
  });
}

// The group of factors; none where they are null or no factors of this kind.
template <class Handle>
group group_of_factors(const Handle* given) noexcept {
  if (given == nullptr || given->mark != Handle::k_kind) return {};
  return std::visit([](const auto& from) { return from.where.group; }, given->value);
}

// The frame of a member that computes: work(factors, its token, their sizes, T{}, call) returns a report.
template <class Handle, class Work>
std::int32_t compute_with(const Handle* factors, const ballast_call* call, ballast_report* report, ballast_error* error, Work&& work) {
  return guarded(error, group_of_factors(factors), [&](frame& here) {
    const Handle& of = needed(factors, "factors");
    here.problem = of.token;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    std::visit([&]<template <class> class Factors, class T>(
                   const Factors<T>& from) { fill(report, work(from, of.token, sizes_of(from), T(), now)); },
               of.value);
  });
}

template <class T>
report store(qr::computed<T>&& made, const matrix_view<T>& to) {
  copy<T>(std::as_const(made.values).view(), to);
  return std::move(made.report);
}

// The members of both kinds.

template <class Handle>
std::int32_t copy_r(const Handle* factors, const DLTensor* R, ballast_error* error) {
  return in_factors(
      factors, error,
      [&]<template <class> class Factors, class T>(const Factors<T>& from, const std::string& token, const factor_sizes& sizes) {
        const auto to = target_of<T>(tensor(R, {token, "R"}), sizes.r_rows, sizes.r_columns);
        const matrix<T> made = from.r();
        copy<T>(made.view(), to);
      });
}

template <class Handle>
std::int32_t compute_q(const Handle* factors, const DLTensor* Q, const ballast_call* call, ballast_report* report, ballast_error* error) {
  return compute_with(factors, call, report, error,
                      [&]<class T>(const auto& from, const std::string& token, const factor_sizes& sizes, T, const ballast::call& now) {
                        const auto to = target_of<T>(tensor(Q, {token, "Q"}), sizes.rows, sizes.q_columns);
                        return store(from.q(now), to);
                      });
}

template <class Handle>
std::int32_t apply_q(const Handle* factors, std::int32_t transpose, const DLTensor* C, const DLTensor* product, const ballast_call* call,
                     ballast_report* report, ballast_error* error) {
  return compute_with(factors, call, report, error,
                      [&]<class T>(const auto& from, const std::string& token, const factor_sizes& sizes, T, const ballast::call& now) {
                        if (transpose != BALLAST_NO_TRANSPOSE && transpose != BALLAST_TRANSPOSE)
                          throw invalid_argument_error(fmt::format("{}: transpose: expected 0 (no) or 1 (yes), got {}", token, transpose));
                        const auto operand = matrix_of<const T>(tensor(C, {token, "C"}), from.where, true);
                        const auto to = target_of<T>(tensor(product, {token, "product"}), sizes.rows, operand.columns, true);
                        return store(transpose == BALLAST_TRANSPOSE ? from.apply_transposed(operand, now) : from.apply(operand, now), to);
                      });
}

template <class Handle>
std::int32_t solve_with(const Handle* factors, const DLTensor* B, const DLTensor* X, const ballast_call* call, ballast_report* report,
                        ballast_error* error) {
  return compute_with(factors, call, report, error,
                      [&]<class T>(const auto& from, const std::string& token, const factor_sizes& sizes, T, const ballast::call& now) {
                        const auto right = matrix_of<const T>(tensor(B, {token, "B"}), from.where, true);
                        const auto to = target_of<T>(tensor(X, {token, "X"}), sizes.x_rows, right.columns, true);
                        return store(from.solve(right, now), to);
                      });
}

}  // namespace ballast::c
