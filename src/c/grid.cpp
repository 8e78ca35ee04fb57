// QR on a grid of ranks, in ScaLAPACK's layout.
// Layer: interface.
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <ballast/qr_grid.hpp>

#include "c/group_factors.hpp"
#include "c/handles.hpp"
#include "c/outputs.hpp"
#include "c/tensor.hpp"

struct ballast_grid_factors : ballast::c::group_factors<ballast::qr::grid_factors, ballast::c::kind::grid_factors> {
  using group_factors::group_factors;
};

using namespace ballast::c;

int32_t ballast_qr_factor_grid(const DLTensor* local, const int32_t* desc, const ballast_process_grid* grid, const ballast_options* options,
                               const ballast_call* call, ballast_grid_factors** factors, ballast_report* report, ballast_error* error) {
  return guarded(error, group_of(options), [&](frame& here) {
    output(factors, "factors") = nullptr;
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const ballast::execution where = where_for(options);
    const tensor given(local, {"qr", "local"});
    here.poses(token_of(given, desc));
    const std::span<const int> numbers = numbers_of(desc);
    with_type_of(given, [&]<class T>(T) {
      keep(ballast::qr::factor_grid(elements_of<const T>(in_host_memory(given), 1, where), numbers, grid_of(grid), where, now), factors,
           report);
    });
  });
}

void ballast_grid_factors_destroy(ballast_grid_factors* factors) { destroy(factors); }

int32_t ballast_grid_factors_shape(const ballast_grid_factors* factors, int64_t* rows, int64_t* columns, int64_t* own_rows,
                                   int64_t* own_columns, int64_t* r_rows, int64_t* q_columns, ballast_error* error) {
  return in_factors(factors, error, [&](const auto&, const std::string&, const factor_sizes& sizes) {
    if (rows != nullptr) *rows = sizes.m;
    if (columns != nullptr) *columns = sizes.n;
    if (own_rows != nullptr) *own_rows = sizes.rows;
    if (own_columns != nullptr) *own_columns = sizes.r_columns;
    if (r_rows != nullptr) *r_rows = sizes.r_rows;
    if (q_columns != nullptr) *q_columns = sizes.q_columns;
  });
}

int32_t ballast_grid_factors_r(const ballast_grid_factors* factors, const DLTensor* R, ballast_error* error) {
  return copy_r(factors, R, error);
}

int32_t ballast_grid_factors_storage(const ballast_grid_factors* factors, const DLTensor* A, const DLTensor* tau, ballast_error* error) {
  return in_factors(factors, error,
                    [&](const auto& from, const std::string& token, const factor_sizes&) { copy_storage(from, token, A, tau); });
}

int32_t ballast_grid_factors_q(const ballast_grid_factors* factors, const DLTensor* Q, const ballast_call* call, ballast_report* report,
                               ballast_error* error) {
  return compute_q(factors, Q, call, report, error);
}

int32_t ballast_grid_factors_apply(const ballast_grid_factors* factors, int32_t transpose, const DLTensor* C, const DLTensor* product,
                                   const ballast_call* call, ballast_report* report, ballast_error* error) {
  return apply_q(factors, transpose, C, product, call, report, error);
}

int32_t ballast_grid_factors_solve(const ballast_grid_factors* factors, const DLTensor* B, const DLTensor* X, const ballast_call* call,
                                   ballast_report* report, ballast_error* error) {
  return solve_with(factors, B, X, call, report, error);
}
