// The calls of column_factors on a group of devices. See include/ballast/qr_columns.hpp.
// Layer: algorithm.
#pragma once

#include <ballast/qr_columns.hpp>

#include "qr/contract.hpp"

namespace ballast::qr {

// As factor_columns() and the members of column_factors, for real numbers.
template <class S>
column_factors<S> factor_columns_on_devices(matrix_view<const S> A, index block, const execution& where, const call& now);
template <class S>
matrix<S> r_of_devices(const column_factors<S>& of);
template <class S>
computed<S> q_of_devices(const column_factors<S>& of, const call& now);
template <class S>
computed<S> product_of_devices(const column_factors<S>& of, bool transposed, matrix_view<const S> C, const call& now);
template <class S>
computed<S> solution_of_devices(const column_factors<S>& of, matrix_view<const S> B, const call& now);

}  // namespace ballast::qr
