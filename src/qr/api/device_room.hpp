// Matrices in the memory of the devices of a group: where they lie, and copies from one device to another, compared by a seal.
// Layer: algorithm, over the engine of one device. For row_factors and column_factors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include <ballast/view.hpp>

#include "core/extent.hpp"
#include "cuda/device/device.hpp"
#include "qr/api/group_operation.hpp"
#include "qr/api/operation_call.hpp"
#include "run/attempt.hpp"
#include "run/call_scope.hpp"

namespace ballast::qr {

template <class T>
inline constexpr auto k_bytes = static_cast<index>(sizeof(T));

// A matrix in the memory of this device. Without memory of its own it is the caller's.
template <class T>
struct resident {
  ballast::cuda::device_buffer memory;
  matrix_view<T> view;
};

template <class T>
resident<T> new_matrix(index rows, index columns) {
  const auto& on = ballast::cuda::current_device();
  resident<T> made{ballast::cuda::device_buffer(on, core::checked_product(rows, columns) * k_bytes<T>), {}};
  on->synchronize(nullptr);  // other streams use it
  made.view = column_major(static_cast<T*>(made.memory.data()), rows, columns, std::max<index>(rows, 1));
  return made;
}

// Copies columns without gaps in each.
template <class T>
void copy_columns(matrix_view<const T> from, matrix_view<T> to) {
  const auto& on = ballast::cuda::current_device();
  const bool dense = from.column_stride == from.rows && to.column_stride == to.rows;
  if (dense) {
    on->copy(to.data, from.data, from.rows * from.columns * k_bytes<T>, nullptr);
  } else {
    on->copy_columns(to.data, to.column_stride * k_bytes<T>, from.data, from.column_stride * k_bytes<T>, from.rows * k_bytes<T>,
                     from.columns, nullptr);
  }
  on->synchronize(nullptr);
}

// The same elements as columns without gaps: a matrix, its transpose, or all memory from the first to the last element.
template <class T>
matrix_view<const T> as_columns(matrix_view<const T> of) {
  if (of.row_stride == 1 && of.column_stride >= of.rows) return of;
  if (of.column_stride == 1 && of.row_stride >= of.columns) return of.transposed();
  const auto all = core::extent_of(of);
  return column_major(all.first, all.elements, index{1}, all.elements);
}

// Returns the number of the device of the group that has this memory; −1: host memory, or that of a device outside of the group.
inline int owner_of(const void* memory, std::span<const int> devices) {
  for (const int each : devices) {
    const ballast::cuda::device_scope there(each);
    if (ballast::cuda::current_device()->accessible(memory)) return each;
  }
  return -1;
}

// As copy_columns() to this device, from the one with number `source` (−1: from anywhere): through host memory if there is no road between
// them.
template <class T>
void fetch_columns(int source, matrix_view<const T> from, matrix_view<T> to) {
  const auto on = ballast::cuda::current_device();
  matrix<T> between;
  if (source >= 0) {
    const ballast::cuda::device_scope there(source);
    if (!ballast::cuda::current_device()->opens_to(*on)) {
      between = matrix<T>(from.rows, from.columns, order::column_major);
      copy_columns(from, between.view());
    }
  }
  copy_columns(between.size() > 0 ? std::as_const(between).view() : from, to);
}

// Returns the hash of columns in the memory of that device.
template <class T>
std::uint64_t seal_there(const prepared& own, int device, matrix_view<const T> of) {
  execution where = own.where;
  where.device = device;
  const prepared plan(problem_of<T>(of.rows, of.columns), where, {}, core::arena::spares::no);
  return run::in_call(&plan.memory, device, plan.token, [&] {
    operation_call<T> there(plan, plan.settings_for(group_operation<T>::silent()), plan.backend);
    return there.on->hash(of);
  });
}

// Returns a matrix where this device can read it. A copy from another device of the group is compared with its source by a seal.
template <class T>
resident<const T> bring(std::span<const int> devices, const prepared& plan, operation_call<T>& here, matrix_view<const T> from) {
  const auto& on = ballast::cuda::current_device();
  if (on->accessible(from.data)) return {{}, from};
  const matrix_view<const T> lines = as_columns(from);
  resident<T> made = new_matrix<T>(lines.rows, lines.columns);
  const int source = owner_of(from.data, devices);
  const bool checked = source >= 0 && here.how.protection != protection::off;
  run::attempt(here.seen, here.how.protection, "qr.transfer", 0, [&](int) {
    const std::uint64_t seal = checked ? seal_there(plan, source, lines) : 0;  // in each attempt: it may have been struck
    fetch_columns(source, lines, made.view);
    if (source >= 0) here.on->strike(site::transfer, {0, 1, 0, 1}, made.view);
    abft::finding seen;
    if (!checked) return seen;
    here.seen.checked(1);
    if (here.on->hash(made.view) == seal) return seen;
    seen.word = abft::k_fail;
    seen.residual = std::numeric_limits<double>::quiet_NaN();
    return seen;
  });
  matrix_view<const T> view;
  if (from.row_stride == 1 && from.column_stride >= from.rows)
    view = made.view;
  else if (from.column_stride == 1 && from.row_stride >= from.columns)
    view = std::as_const(made.view).transposed();
  else
    view = core::in_copy(from, static_cast<const T*>(made.view.data));
  return {std::move(made.memory), view};
}

}  // namespace ballast::qr
