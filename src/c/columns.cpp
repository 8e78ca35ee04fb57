// QR of block columns on a group, and ScaLAPACK's layout.
// Layer: interface.
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <ballast/qr_columns.hpp>
#include <ballast/qr_descriptor.hpp>

#include "c/group_factors.hpp"
#include "c/handles.hpp"
#include "c/outputs.hpp"
#include "c/tensor.hpp"
#include "core/format.hpp"

struct ballast_column_factors : ballast::c::group_factors<ballast::qr::column_factors, ballast::c::kind::column_factors> {
  using group_factors::group_factors;
};

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
  return guarded(error, group_of(options), [&](frame& here) {
    output(factors, "factors") = nullptr;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast::execution where = where_for(options);
    const tensor given(A, {"qr", "A"});
    with_type_of(given, [&]<class T>(T) {
      keep(ballast::qr::factor_columns(matrix_of<const T>(given, where), block, where, now), factors, report);
    });
  });
}

void ballast_column_factors_destroy(ballast_column_factors* factors) { destroy(factors); }

int32_t ballast_column_factors_shape(const ballast_column_factors* factors, int64_t* rows, int64_t* columns, int64_t* r_columns,
                                     int64_t* q_columns, ballast_error* error) {
  return in_factors(factors, error, [&](const auto&, const std::string&, const factor_sizes& sizes) {
    if (rows != nullptr) *rows = sizes.m;
    if (columns != nullptr) *columns = sizes.n;
    if (r_columns != nullptr) *r_columns = sizes.r_columns;
    if (q_columns != nullptr) *q_columns = sizes.q_columns;
  });
}

int32_t ballast_column_factors_r(const ballast_column_factors* factors, const DLTensor* R, ballast_error* error) {
  return copy_r(factors, R, error);
}

int32_t ballast_column_factors_storage(const ballast_column_factors* factors, const DLTensor* A, const DLTensor* tau,
                                       ballast_error* error) {
  return in_factors(factors, error, [&](const auto& from, const std::string& token, const factor_sizes&) {
    if (A != nullptr && !from.devices.empty())
      throw ballast::unsupported_error(token + ": A: expected factors of ranks for their storage, got those of devices");
    copy_storage(from, token, A, tau);
  });
}

int32_t ballast_column_factors_q(const ballast_column_factors* factors, const DLTensor* Q, const ballast_call* call, ballast_report* report,
                                 ballast_error* error) {
  return compute_q(factors, Q, call, report, error);
}

int32_t ballast_column_factors_apply(const ballast_column_factors* factors, int32_t transpose, const DLTensor* C, const DLTensor* product,
                                     const ballast_call* call, ballast_report* report, ballast_error* error) {
  return apply_q(factors, transpose, C, product, call, report, error);
}

int32_t ballast_column_factors_solve(const ballast_column_factors* factors, const DLTensor* B, const DLTensor* X, const ballast_call* call,
                                     ballast_report* report, ballast_error* error) {
  return solve_with(factors, B, X, call, report, error);
}

int32_t ballast_qr_to_block_columns(const DLTensor* local, const int32_t* desc, const ballast_process_grid* grid, int64_t block,
                                    const ballast_options* options, const DLTensor* columns, const ballast_call* call,
                                    ballast_report* report, ballast_error* error) {
  return guarded(error, group_of(options), [&](frame& here) {
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast::execution where = where_for(options);
    const tensor given(local, {"qr", "local"});
    here.poses(token_of(given, desc));
    const std::span<const int> numbers = numbers_of(desc);
    with_type_of(given, [&]<class T>(T) {
      const tensor to(columns, {here.problem, "columns"});
      ballast::qr::computed<T> made =
          ballast::qr::to_block_columns(elements_of<const T>(in_host_memory(given), 1, where), numbers, grid_of(grid), block, where, now);
      copy<T>(std::as_const(made.values).view(), target_of<T>(to, made.values.rows(), made.values.columns()));
      fill(report, std::move(made.report));
    });
  });
}

int32_t ballast_qr_from_block_columns(const DLTensor* columns, int64_t block, const DLTensor* local, const int32_t* desc,
                                      const ballast_process_grid* grid, const ballast_options* options, const ballast_call* call,
                                      ballast_report* report, ballast_error* error) {
  return guarded(error, group_of(options), [&](frame& here) {
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast::execution where = where_for(options);
    const tensor given(columns, {"qr", "columns"});
    here.poses(token_of(given, desc));
    const std::span<const int> numbers = numbers_of(desc);
    with_type_of(given, [&]<class T>(T) {
      const tensor to(local, {here.problem, "local"});
      fill(report, ballast::qr::from_block_columns(matrix_of<const T>(in_host_memory(given), where), block,
                                                   elements_of<T>(in_host_memory(to), 1, where), numbers, grid_of(grid), where, now));
    });
  });
}
