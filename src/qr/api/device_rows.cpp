// The rows of one device in the calls of row_factors: operands come to the device and are compared with their source by a seal; factors
// stay in its memory. Layer: algorithm, over the operations of one matrix. docs/design/distributed.md, "QR of rows".
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr_rows.hpp>

#include "core/extent.hpp"
#include "core/format.hpp"
#include "cuda/device/device.hpp"
#include "qr/api/operation_call.hpp"
#include "qr/api/operations.hpp"
#include "qr/api/own_rows.hpp"
#include "run/attempt.hpp"
#include "run/call_scope.hpp"

namespace ballast::qr {

namespace {

using ballast::cuda::device_buffer;

template <class T>
constexpr auto k_bytes = static_cast<index>(sizeof(T));

// A matrix in the memory of this device. Without memory of its own it is the caller's.
template <class T>
struct resident {
  device_buffer memory;
  matrix_view<T> view;
};

template <class T>
resident<T> new_matrix(index rows, index columns) {
  const auto& on = ballast::cuda::current_device();
  resident<T> made{device_buffer(on, core::checked_product(rows, columns) * k_bytes<T>), {}};
  on->synchronize(nullptr);  // other streams use it
  made.view = column_major(static_cast<T*>(made.memory.data()), rows, columns, std::max<index>(rows, 1));
  return made;
}

// Copies columns without gaps in each. More than a few thousand of them are one copy of two dimensions.
template <class T>
void copy_columns(matrix_view<const T> from, matrix_view<T> to) {
  constexpr index most_copies = 4096;
  const auto& on = ballast::cuda::current_device();
  const bool dense = from.column_stride == from.rows && to.column_stride == to.rows;
  if (dense) {
    on->copy(to.data, from.data, from.rows * from.columns * k_bytes<T>, nullptr);
  } else if (from.columns <= most_copies) {
    for (index j = 0; j < from.columns; ++j) on->copy(&to(0, j), &from(0, j), from.rows * k_bytes<T>, nullptr);
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

// One call of one device: its plan, and the engine for copies and seals.
template <class T>
class work_on_device {
 public:
  work_on_device(group_operation<T>& call, std::span<const int> devices, index rows, index columns)
      : call_(call), devices_(devices), plan_(problem_of<T>(rows, columns), call.alone(), {}, core::arena::spares::no) {}

  const prepared& plan() const { return plan_; }

  // Runs work(operation_call) on the device and adds what it has recorded to the report of all.
  template <class Work>
  void run(Work&& work) {
    run::in_call(&plan_.memory, plan_.where.device, plan_.token, [&] {
      operation_call<T> here(plan_, plan_.settings_for(call_.silent()), plan_.backend);
      work(here);
      here.on->wait();
      call_.add(here.seen.collect());
    });
  }

  // Returns a matrix where this device can read it. What lies on another device of the group is compared with its source by a seal.
  resident<const T> bring(operation_call<T>& here, matrix_view<const T> from) const {
    const auto& on = ballast::cuda::current_device();
    if (on->accessible(from.data)) return {{}, from};
    const matrix_view<const T> lines = as_columns(from);
    resident<T> made = new_matrix<T>(lines.rows, lines.columns);
    const int source = owner_of(from.data);
    const bool checked = source >= 0 && here.how.protection != protection::off;
    run::attempt(here.seen, here.how.protection, "qr.transfer", 0, [&](int) {
      const std::uint64_t seal = checked ? seal_there(source, lines) : 0;  // in each attempt: it may have been struck
      fetch(source, lines, made.view);
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

  // A copy in this device's memory that may be written.
  resident<T> copy_of(operation_call<T>& here, matrix_view<const T> from) const {
    resident<const T> source = bring(here, from);
    const bool whole = source.view.row_stride == 1 && source.view.column_stride == source.view.rows;
    if (source.memory.data() != nullptr && whole)
      return {std::move(source.memory), column_major(const_cast<T*>(source.view.data), from.rows, from.columns, from.rows)};
    resident<T> made = new_matrix<T>(from.rows, from.columns);
    copy_verified<T>(here.run, *here.on, source.view, made.view);
    here.on->wait();
    return made;
  }

 private:
  // The number of the device of the group that has this memory; −1: host memory, or that of a device outside of the group.
  int owner_of(const void* memory) const {
    for (const int each : devices_) {
      const ballast::cuda::device_scope there(each);
      if (ballast::cuda::current_device()->accessible(memory)) return each;
    }
    return -1;
  }

  // Copies to this device, through host memory from a device that it has no road to.
  static void fetch(int source, matrix_view<const T> from, matrix_view<T> to) {
    const auto on = ballast::cuda::current_device();
    if (source < 0) return copy_columns(from, to);
    matrix<T> between;
    {
      const ballast::cuda::device_scope there(source);
      if (!ballast::cuda::current_device()->opens_to(*on)) {
        between = matrix<T>(from.rows, from.columns, order::column_major);
        copy_columns(from, between.view());
      }
    }
    copy_columns(between.size() > 0 ? std::as_const(between).view() : from, to);
  }

  std::uint64_t seal_there(int device, matrix_view<const T> of) const {
    execution where = plan_.where;
    where.device = device;
    const prepared plan(problem_of<T>(of.rows, of.columns), where, {}, core::arena::spares::no);
    return run::in_call(&plan.memory, device, plan.token, [&] {
      operation_call<T> there(plan, plan.settings_for(call_.silent()), plan.backend);
      return there.on->hash(of);
    });
  }

  group_operation<T>& call_;
  const std::span<const int> devices_;
  prepared plan_;
};

// Owns what device_factors::memory keeps.
struct factors_memory {
  device_buffer storage, tau;
};

template <class T>
class rows_on_device final : public own_rows<T> {
 public:
  rows_on_device(device_factors<T>& own, std::span<const int> devices) : own_(own), devices_(devices) {}

  std::int64_t rows() const override { return own_.storage.rows; }

  std::vector<T> factor(group_operation<T>& call, matrix_view<const T> A) override {
    work_on_device<T> work(call, devices_, A.rows, A.columns);
    const index steps = std::min(A.rows, A.columns);
    resident<const T> source;
    resident<T> made, tau;
    work.run([&](operation_call<T>& here) {
      source = work.bring(here, A);
      made = new_matrix<T>(A.rows, A.columns);
      tau = new_matrix<T>(steps, 1);
    });
    call.add(
        factor_of<T>(work.plan(), source.view, made.view, std::span<T>(tau.view.data, static_cast<std::size_t>(steps)), call.silent()));
    auto memory = std::make_shared<factors_memory>();
    own_.device = work.plan().where.device;
    own_.storage = made.view;
    own_.tau = std::span<const T>(tau.view.data, static_cast<std::size_t>(steps));
    memory->storage = std::move(made.memory);
    memory->tau = std::move(tau.memory);
    own_.memory = std::move(memory);
    const matrix<T> top = on_host(own_.storage.block(0, 0, steps, A.columns));
    return triangle_of(top.view());
  }

  std::vector<T> transposed_times(group_operation<T>& call, matrix_view<const T> B) const override {
    work_on_device<T> work(call, devices_, own_.storage.rows, own_.storage.columns);
    resident<T> C;
    work.run([&](operation_call<T>& here) { C = work.copy_of(here, B); });
    call.add(ormqr_of<T>(work.plan(), side::left, transpose::yes, own_.storage, own_.tau, C.view, call.silent()));
    const matrix<T> top = on_host(C.view.block(0, 0, static_cast<index>(own_.tau.size()), B.columns));
    return rows_of(top.view(), 0, top.rows());
  }

  void times(group_operation<T>& call, std::span<const std::byte> top, matrix_view<T> to) const override {
    work_on_device<T> work(call, devices_, own_.storage.rows, own_.storage.columns);
    matrix<T> first(static_cast<index>(own_.tau.size()), to.columns, order::column_major);
    this->store_top(top, first.view());
    resident<T> C;
    work.run([&](operation_call<T>&) {
      C = new_matrix<T>(to.rows, to.columns);
      const auto& on = ballast::cuda::current_device();
      on->zero(C.memory.data(), C.memory.bytes(), nullptr);
      copy_columns(std::as_const(first).view(), C.view.block(0, 0, first.rows(), to.columns));
    });
    call.add(ormqr_of<T>(work.plan(), side::left, transpose::no, own_.storage, own_.tau, C.view, call.silent()));
    const ballast::cuda::device_scope here(own_.device);
    copy_columns(matrix_view<const T>(C.view), to);
  }

 private:
  matrix<T> on_host(matrix_view<const T> of) const {
    const ballast::cuda::device_scope here(own_.device);
    matrix<T> made(of.rows, of.columns, order::column_major);
    copy_columns(of, made.view());
    return made;
  }

  device_factors<T>& own_;
  const std::span<const int> devices_;
};

}  // namespace

template <class T>
std::unique_ptr<own_rows<T>> make_rows_on_device(device_factors<T>& own, std::span<const int> devices) {
  return std::make_unique<rows_on_device<T>>(own, devices);
}
template std::unique_ptr<own_rows<float>> make_rows_on_device<float>(device_factors<float>&, std::span<const int>);
template std::unique_ptr<own_rows<double>> make_rows_on_device<double>(device_factors<double>&, std::span<const int>);

inline namespace abi_1 {

template <class T>
factors<T> device_factors<T>::on_host() const {
  factors<T> made;
  made.storage = matrix<T>(storage.rows, storage.columns, order::column_major);
  made.tau.resize(tau.size());
  run::in_call(nullptr, device, "qr", [&] {
    copy_columns(storage, made.storage.view());
    copy_columns(column_major(tau.data(), static_cast<index>(tau.size()), index{1}, static_cast<index>(tau.size())),
                 column_major(made.tau.data(), static_cast<index>(tau.size()), index{1}, static_cast<index>(tau.size())));
  });
  return made;
}

template class device_factors<float>;
template class device_factors<double>;

}  // namespace abi_1
}  // namespace ballast::qr
