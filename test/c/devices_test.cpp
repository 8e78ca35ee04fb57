// Tensors in device memory and enqueued work, on the emulated device. Backends of the host compute: no kernel is needed.
#include <cmath>
#include <memory>
#include <utility>

#include "c/handles.hpp"
#include "c/support.hpp"
#include "cuda/device/device.hpp"
#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "run/pending_report.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"

namespace ballast::test {
namespace {

// A device whose events pass when the test says so.
class patient_device final : public forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  bool passed(const cuda::stream_event& event) override { return forwarding_device::passed(event) && work_is_done; }
  bool captured(cuda::stream) override { return captures; }
  bool work_is_done = false, captures = false;
};

// Work that found one fault, or one that stays.
class fake_work final : public run::pending {
 public:
  explicit fake_work(action taken) : taken_(taken) {}
  void collect(run::recorder& seen) override {
    seen.checked(3);
    seen.detected("fft.signal", 7, 2, 1, taken_, 0);
  }

 private:
  action taken_;
};

class c_devices : public c_interface {
 protected:
  c_devices() { cuda::override_device(device); }
  ~c_devices() override { cuda::override_device(nullptr); }

  // A tensor in device memory with the numbers of a vector.
  template <class T>
  struct copy_on_device {
    copy_on_device(const std::shared_ptr<cuda::device>& on, const std::vector<T>& from, std::vector<std::int64_t> lengths)
        : memory(on, static_cast<std::int64_t>(from.size() * sizeof(T))),
          view(static_cast<T*>(memory.data()), std::move(lengths)),
          on_(on),
          count_(from.size()) {
      on->copy(memory.data(), from.data(), memory.bytes(), nullptr);
      view->device.device_type = static_cast<decltype(view->device.device_type)>(BALLAST_DLPACK_CUDA);
    }
    std::vector<T> values() const {
      std::vector<T> made(count_);
      on_->copy(made.data(), memory.data(), memory.bytes(), nullptr);
      return made;
    }
    cuda::device_buffer memory;
    tensor view;

   private:
    std::shared_ptr<cuda::device> on_;
    std::size_t count_;
  };

  // A handle of enqueued work.
  void enqueue(action taken, bool throws, pending& made) {
    const shared_text token = "fft_c2c_f32_n8_b1_fwd";
    run::settings how;
    how.throw_on_uncorrectable = throws;
    auto work = std::unique_ptr<pending_report::implementation>(
        new pending_report::implementation{{},
                                           nullptr,
                                           how,
                                           token,
                                           backend::cuda,
                                           "verify_before_store",
                                           inject::active_injector(nullptr, fft::site::table()),
                                           std::make_unique<fake_work>(taken)});
    made.value = new ballast_pending(pending_report(std::move(work)), token.str(), !throws);
  }

  std::shared_ptr<patient_device> device = std::make_shared<patient_device>(std::make_shared<simt::emulated_device>());
};

TEST_F(c_devices, kmeans_of_points_on_a_device) {
  const std::vector<float> numbers = {0, 0.1F, 0.2F, 10, 10.1F, 10.2F};
  copy_on_device<float> points(device, numbers, {6, 1}), centroids(device, {7, 7}, {2, 1});
  copy_on_device<std::int32_t> labels(device, std::vector<std::int32_t>(6, 7), {6});
  options with;
  make("kmeans", with);
  ASSERT_EQ(ballast_options_set_problem(with, "kmeans_f32_m6_n1_k2", nullptr, wrong), BALLAST_OK) << message();
  kmeans_plan plan;
  ASSERT_EQ(ballast_kmeans_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  double inertia = 0;
  const ballast_kmeans_data data = {sizeof data, points.view, nullptr, nullptr, nullptr, nullptr};
  const ballast_kmeans_results results = {sizeof results, centroids.view, labels.view, &inertia, nullptr, nullptr};
  ASSERT_EQ(ballast_kmeans_fit(plan, &data, &results, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_NEAR(inertia, 0.04, 1e-6);
  const std::vector<std::int32_t> found = labels.values();
  EXPECT_EQ(found, (std::vector<std::int32_t>{found[0], found[0], found[0], 1 - found[0], 1 - found[0], 1 - found[0]}));
  EXPECT_NEAR(std::abs(centroids.values()[0] - centroids.values()[1]), 10, 1e-5);
}

TEST_F(c_devices, least_squares_on_a_device) {
  copy_on_device<double> A(device, {1, 0, 1, 1, 1, 2}, {3, 2}), b(device, {1, 3, 5}, {3});
  options with;
  make("qr", with);
  ASSERT_EQ(ballast_options_set_problem(with, "qr_f64_m3_n2", nullptr, wrong), BALLAST_OK) << message();
  qr_plan plan;
  ASSERT_EQ(ballast_qr_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_qr_gels(plan, A.view, b.view, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_NEAR(b.values()[0], 1, 1e-14);
  EXPECT_NEAR(b.values()[1], 2, 1e-14);
  // Factors that the library keeps go to host memory only.
  factors kept;
  copy_on_device<double> fresh(device, {1, 0, 1, 1, 1, 2}, {3, 2}), R(device, {0, 0, 0, 0}, {2, 2});
  ASSERT_EQ(ballast_qr_factor(fresh.view, with, nullptr, &kept, seen, wrong), BALLAST_OK) << message();
  EXPECT_EQ(ballast_factors_r(kept, R.view, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("R: expected host memory"), std::string::npos) << message();
}

TEST_F(c_devices, what_a_tensor_says_must_be_so) {
  std::vector<std::complex<float>> host(8);
  tensor in(host, {8}), out(host, {8});
  fft_plan plan;
  options with;
  make("fft", with);
  set(with, "device", 3);
  ASSERT_EQ(ballast_fft_plan_create_like(in, out, with, &plan, wrong), BALLAST_OK) << message();
  const auto run = [&](const DLTensor* from) { return ballast_fft_run(plan, BALLAST_FORWARD, from, from, nullptr, nullptr, wrong); };
  in->device = {BALLAST_DLPACK_CUDA, 0};
  EXPECT_EQ(run(in), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("expected memory of the plan's device 3, got that of device 0"), std::string::npos) << message();
  in->device = {BALLAST_DLPACK_CUDA, 3};
  EXPECT_EQ(run(in), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("no CUDA driver in this process knows"), std::string::npos) << message();
  // The FFT of a host backend cannot read device memory.
  copy_on_device<std::complex<float>> data(device, host, {8});
  data.view->device.device_id = 3;
  EXPECT_EQ(run(data.view), BALLAST_UNSUPPORTED);
  EXPECT_NE(message().find("expected the backend cuda for device memory, got cpu"), std::string::npos) << message();
}

TEST_F(c_devices, pending_work) {
  pending work;
  enqueue(action::recomputed, true, work);
  std::int32_t ready = -1;
  device->captures = true;
  EXPECT_EQ(ballast_pending_ready(work, &ready, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("not captured"), std::string::npos) << message();
  device->captures = false;
  ASSERT_EQ(ballast_pending_ready(work, &ready, wrong), BALLAST_OK) << message();
  EXPECT_EQ(ready, 0);
  device->work_is_done = true;
  ASSERT_EQ(ballast_pending_ready(work, &ready, wrong), BALLAST_OK) << message();
  EXPECT_EQ(ready, 1);
  EXPECT_EQ(ballast_pending_ready(work, nullptr, wrong), BALLAST_INVALID_ARGUMENT);
  for (int launch = 0; launch < 2; ++launch) {  // a graph may run again
    ASSERT_EQ(ballast_pending_wait(work, seen, wrong), BALLAST_OK) << message();
    EXPECT_EQ(summary().checks, 3U);
    EXPECT_EQ(summary().verdict, BALLAST_RECOMPUTED);
    EXPECT_EQ(summary().backend, BALLAST_BACKEND_CUDA);
  }
  ASSERT_EQ(ballast_pending_wait(work, nullptr, wrong), BALLAST_OK) << message();
}

TEST_F(c_devices, uncorrectable_pending_work) {
  pending raises, says;
  enqueue(action::uncorrectable, true, raises);
  EXPECT_EQ(ballast_pending_wait(raises, seen, wrong), BALLAST_UNCORRECTABLE);
  EXPECT_STREQ(ballast_error_problem(wrong), "fft_c2c_f32_n8_b1_fwd");
  EXPECT_EQ(summary().uncorrectable, 1U);
  EXPECT_EQ(ballast_pending_wait(raises, nullptr, nullptr), BALLAST_UNCORRECTABLE);
  enqueue(action::uncorrectable, false, says);
  EXPECT_EQ(ballast_pending_wait(says, nullptr, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("report: expected a report"), std::string::npos) << message();
  EXPECT_EQ(ballast_pending_wait(says, seen, wrong), BALLAST_OK) << message();
  EXPECT_EQ(summary().verdict, BALLAST_VERDICT_UNCORRECTABLE);
}

}  // namespace
}  // namespace ballast::test
