// The rows of one device in the calls of row_factors: operands come to the device, compared by a seal, and factors stay in its memory.
// Layer: algorithm, over the operations of one matrix. docs/design/distributed.md, "QR of rows".
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr_rows.hpp>

#include "core/format.hpp"
#include "cuda/device/device.hpp"
#include "qr/api/device_room.hpp"
#include "qr/api/operation_call.hpp"
#include "qr/api/operations.hpp"
#include "qr/api/own_rows.hpp"
#include "run/call_scope.hpp"

namespace ballast::qr {

namespace {

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

  resident<const T> bring(operation_call<T>& here, matrix_view<const T> from) const { return qr::bring(devices_, plan_, here, from); }

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
  group_operation<T>& call_;
  const std::span<const int> devices_;
  prepared plan_;
};

// Owns what device_factors::memory keeps.
struct factors_memory {
  ballast::cuda::device_buffer storage, tau;
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
