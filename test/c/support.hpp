// Tensors and handles for tests of the C interface.
#pragma once

#include <complex>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/ballast.h>

namespace ballast::test {

// A handle that destroys itself.
template <class Handle, void (*Destroy)(Handle*)>
struct owned {
  owned() = default;
  owned(const owned&) = delete;
  owned& operator=(const owned&) = delete;
  ~owned() { Destroy(value); }
  operator Handle*() const { return value; }
  Handle** operator&() { return &value; }
  Handle* value = nullptr;
};

using error = owned<ballast_error, ballast_error_destroy>;
using options = owned<ballast_options, ballast_options_destroy>;
using report = owned<ballast_report, ballast_report_destroy>;
using call = owned<ballast_call, ballast_call_destroy>;
using pending = owned<ballast_pending, ballast_pending_destroy>;
using fft_plan = owned<ballast_fft_plan, ballast_fft_plan_destroy>;
using kmeans_plan = owned<ballast_kmeans_plan, ballast_kmeans_plan_destroy>;
using qr_plan = owned<ballast_qr_plan, ballast_qr_plan_destroy>;
using factors = owned<ballast_factors, ballast_factors_destroy>;

template <class T>
DLDataType dtype_of() {
  if constexpr (std::is_integral_v<T>) return {BALLAST_DLPACK_INT, 8 * sizeof(T), 1};
  if constexpr (std::is_floating_point_v<T>) return {BALLAST_DLPACK_FLOAT, 8 * sizeof(T), 1};
  return {BALLAST_DLPACK_COMPLEX, 8 * sizeof(T), 1};
}

// A tensor with its own lengths and strides. Without strides: row-major without gaps.
struct tensor {
  template <class T>
  tensor(T* data, std::vector<std::int64_t> lengths, std::vector<std::int64_t> steps = {})
      : length(std::move(lengths)), stride(std::move(steps)) {
    using value = std::remove_const_t<T>;
    set(const_cast<value*>(data), dtype_of<value>());
  }
  template <class T>
  tensor(std::vector<T>& data, std::vector<std::int64_t> lengths, std::vector<std::int64_t> steps = {})
      : tensor(data.data(), std::move(lengths), std::move(steps)) {}
  tensor(const tensor&) = delete;
  tensor& operator=(const tensor&) = delete;
  operator const DLTensor*() const { return &value; }
  DLTensor* operator->() { return &value; }

  std::vector<std::int64_t> length, stride;
  DLTensor value{};

 private:
  void set(void* data, DLDataType type) {
    value.data = data;
    value.device = {BALLAST_DLPACK_CPU, 0};
    value.ndim = static_cast<std::int32_t>(length.size());
    value.dtype = type;
    value.shape = length.data();
    value.strides = stride.empty() ? nullptr : stride.data();
  }
};

// The objects that most tests need.
class c_interface : public testing::Test {
 protected:
  c_interface() {
    EXPECT_EQ(ballast_error_create(&wrong), BALLAST_OK);
    EXPECT_EQ(ballast_report_create(&seen, wrong), BALLAST_OK);
    EXPECT_EQ(ballast_call_create(&now, wrong), BALLAST_OK);
  }
  std::string message() const { return ballast_error_message(wrong); }
  ballast_summary summary() {
    ballast_summary made{};
    made.size = sizeof made;
    EXPECT_EQ(ballast_report_summary(seen, &made, wrong), BALLAST_OK) << message();
    return made;
  }
  void set(ballast_options* to, const char* name, std::int64_t value) {
    ASSERT_EQ(ballast_options_set_integer(to, name, value, wrong), BALLAST_OK) << message();
  }
  void set(ballast_options* to, const char* name, const char* value) {
    ASSERT_EQ(ballast_options_set_text(to, name, value, wrong), BALLAST_OK) << message();
  }
  void set(ballast_options* to, const char* name, const std::vector<std::int64_t>& values) {
    ASSERT_EQ(ballast_options_set_integers(to, name, values.data(), values.size(), wrong), BALLAST_OK) << message();
  }
  void make(const char* algorithm, options& made) {
    ASSERT_EQ(ballast_options_create(algorithm, &made, wrong), BALLAST_OK) << message();
    set(made, "backend", "cpu");
  }

  error wrong;
  report seen;
  call now;
};

}  // namespace ballast::test
