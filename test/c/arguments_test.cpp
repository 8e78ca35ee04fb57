// Bad input to the C interface: each gets a status and a message, and nothing is written.
#include <cmath>
#include <limits>

#include "c/support.hpp"

namespace ballast::test {
namespace {

using complex = std::complex<float>;

class c_arguments : public c_interface {
 protected:
  // Expects a status and a part of the message.
  void refused(std::int32_t got, std::int32_t status, const std::string& part) {
    EXPECT_EQ(got, status) << message();
    EXPECT_EQ(ballast_error_status(wrong), status);
    EXPECT_NE(message().find(part), std::string::npos) << message() << "\nexpected: " << part;
  }
  void invalid(std::int32_t got, const std::string& part) { refused(got, BALLAST_INVALID_ARGUMENT, part); }

  // A plan of the FFT of 2 signals of 8 points, and operands for it.
  void SetUp() override {
    options with;
    make("fft", with);
    set(with, "shape", std::vector<std::int64_t>{8});
    set(with, "batch", 2);
    ASSERT_EQ(ballast_fft_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  }
  std::int32_t run(const DLTensor* in, const DLTensor* out) {
    return ballast_fft_run(plan, BALLAST_FORWARD, in, out, nullptr, seen, wrong);
  }

  fft_plan plan;
  std::vector<complex> data = std::vector<complex>(16), made = std::vector<complex>(16, complex(7));
};

TEST_F(c_arguments, protection_of_a_part) {
  options with;
  make("fft", with);
  set(with, "shape", std::vector<std::int64_t>{8});
  fft_plan other;
  set(with, "sampled", std::int64_t{0});
  invalid(ballast_fft_plan_create(with, &other, wrong), "sampled: expected 1 or more, got 0");
  set(with, "sampled", 1);
  set(with, "protection", "final_only");
  refused(ballast_fft_plan_create(with, &other, wrong), BALLAST_UNSUPPORTED, "got final_only, which is for K-Means");
}

TEST_F(c_arguments, null_handles) {
  EXPECT_EQ(ballast_error_create(nullptr), BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(ballast_error_status(nullptr), BALLAST_OK);
  EXPECT_STREQ(ballast_error_message(nullptr), "");
  EXPECT_STREQ(ballast_error_problem(nullptr), "");
  ballast_error_destroy(nullptr);
  ballast_options_destroy(nullptr);
  ballast_report_destroy(nullptr);
  ballast_call_destroy(nullptr);
  ballast_pending_destroy(nullptr);
  ballast_fft_plan_destroy(nullptr);
  ballast_kmeans_plan_destroy(nullptr);
  ballast_qr_plan_destroy(nullptr);
  ballast_factors_destroy(nullptr);
  ballast_free(nullptr);

  invalid(ballast_options_create("fft", nullptr, wrong), "options: expected the address");
  invalid(ballast_options_set_integer(nullptr, "batch", 1, wrong), "options: expected the address of an object, got null");
  invalid(ballast_options_copy(nullptr, nullptr, wrong), "options: expected");
  invalid(ballast_report_create(nullptr, wrong), "report");
  invalid(ballast_report_summary(nullptr, nullptr, wrong), "report");
  invalid(ballast_call_create(nullptr, wrong), "call");
  invalid(ballast_call_set_stream(nullptr, nullptr, wrong), "call");
  invalid(ballast_fft_plan_create(nullptr, nullptr, wrong), "plan");
  invalid(ballast_fft_run(nullptr, 0, nullptr, nullptr, nullptr, nullptr, wrong), "plan: expected the address of an object, got null");
  invalid(ballast_kmeans_fit(nullptr, nullptr, nullptr, nullptr, nullptr, wrong), "plan");
  invalid(ballast_kmeans_predict(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, wrong), "plan");
  invalid(ballast_kmeans_transform(nullptr, nullptr, nullptr, nullptr, nullptr, wrong), "plan");
  invalid(ballast_qr_geqrf(nullptr, nullptr, nullptr, nullptr, nullptr, wrong), "plan");
  invalid(ballast_qr_gels(nullptr, nullptr, nullptr, nullptr, nullptr, wrong), "plan");
  invalid(ballast_qr_enqueue_gels(nullptr, nullptr, nullptr, nullptr, nullptr, wrong), "pending");
  invalid(ballast_qr_factor(nullptr, nullptr, nullptr, nullptr, nullptr, wrong), "factors");
  invalid(ballast_factors_q(nullptr, nullptr, nullptr, nullptr, wrong), "factors");
  invalid(ballast_pending_wait(nullptr, nullptr, wrong), "pending");
  invalid(ballast_pending_ready(nullptr, nullptr, wrong), "pending");
  invalid(ballast_info_json(nullptr, wrong), "text");
  // The error is optional.
  EXPECT_EQ(ballast_report_create(nullptr, nullptr), BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(ballast_fft_run(nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr), BALLAST_INVALID_ARGUMENT);
}

TEST_F(c_arguments, a_handle_of_another_kind) {
  options with;
  make("fft", with);
  auto* const mistaken = reinterpret_cast<ballast_fft_plan*>(static_cast<ballast_options*>(with));
  invalid(ballast_fft_run(mistaken, 0, nullptr, nullptr, nullptr, nullptr, wrong),
          "plan: expected the address of an object, got that of another");
  EXPECT_EQ(ballast_fft_run(plan, 0, nullptr, nullptr, nullptr, nullptr, reinterpret_cast<ballast_error*>(with.value)),
            BALLAST_INVALID_ARGUMENT);
  ballast_kmeans_plan* none = reinterpret_cast<ballast_kmeans_plan*>(1);
  invalid(ballast_kmeans_plan_create(with, &none, wrong), "options: expected options of kmeans, got those of fft");
  EXPECT_EQ(none, nullptr);
}

TEST_F(c_arguments, options) {
  options none, with;
  invalid(ballast_options_create("dct", &none, wrong), "expected fft, kmeans or qr, got \"dct\"");
  invalid(ballast_options_create(nullptr, &none, wrong), "algorithm: expected a text, got null");
  make("kmeans", with);
  invalid(ballast_options_set_integer(with, "n_inits", 3, wrong), "got \"n_inits\"");
  EXPECT_NE(message().find("n_init,"), std::string::npos) << message();
  invalid(ballast_options_set_integer(with, "shape", 3, wrong), "got \"shape\"");  // an option of another algorithm
  invalid(ballast_options_set_integer(with, nullptr, 3, wrong), "name: expected a text, got null");
  invalid(ballast_options_set_integer(with, "tol", 3, wrong), "tol: expected a number, got an integer");
  invalid(ballast_options_set_number(with, "seed", 3, wrong), "seed: expected an integer, got a number");
  invalid(ballast_options_set_text(with, "seed", "3", wrong), "seed: expected an integer, got a text");
  invalid(ballast_options_set_text(with, "init", "best", wrong), "init: expected one of k-means++, random, given, k-means||, got \"best\"");
  invalid(ballast_options_set_text(with, "init", nullptr, wrong), "value: expected a text, got null");
  invalid(ballast_options_set_integer(with, "max_iter", std::int64_t{1} << 40, wrong), "max_iter: expected a number of 32 bits");
  invalid(ballast_options_set_integers(with, "points", nullptr, 0, wrong), "points: expected an integer, got integers");
  invalid(ballast_options_set_problem(with, "fft_c2c_f32_n8_b1_fwd", nullptr, wrong), "kmeans");
  std::int64_t value = -1;
  EXPECT_EQ(ballast_options_get_integer(with, "max_iter", &value, wrong), BALLAST_OK);
  EXPECT_EQ(value, 300);  // the refused calls changed nothing
  options transforms;
  make("fft", transforms);
  const std::int64_t none_such[] = {0, -1};
  ASSERT_EQ(ballast_options_set_integers(with, "devices", none_such, 2, wrong), BALLAST_OK);
  ballast_kmeans_plan* on_devices = nullptr;
  invalid(ballast_kmeans_plan_create(with, &on_devices, wrong), "devices: expected numbers of devices, got -1");
  ASSERT_EQ(ballast_options_set_integers(with, "devices", nullptr, 0, wrong), BALLAST_OK);
  invalid(ballast_options_set_integers(transforms, "shape", nullptr, 2, wrong), "values");
  const std::vector<std::int64_t> many(65, 2);
  invalid(ballast_options_set_integers(transforms, "shape", many.data(), many.size(), wrong), "shape: expected at most 64 numbers, got 65");
  fft_plan refused_plan;
  invalid(ballast_fft_plan_create(transforms, &refused_plan, wrong), "shape: expected at least one length, got none");
  set(transforms, "shape", std::vector<std::int64_t>{std::int64_t{1} << 62});
  invalid(ballast_fft_plan_create(transforms, &refused_plan, wrong), "less than 2^63 bytes");
  EXPECT_NE(std::string(ballast_error_problem(wrong)).find("fft_c2c_f32_n4611686018427387904_b1_fwd"), std::string::npos);
  set(transforms, "shape", std::vector<std::int64_t>{8});
  set(transforms, "scheme", "no such");
  refused(ballast_fft_plan_create(transforms, &refused_plan, wrong), BALLAST_UNSUPPORTED, "no such");
  set(transforms, "scheme", "");
  set(transforms, "axes", std::vector<std::int64_t>{0, 1});
  invalid(ballast_fft_plan_create(transforms, &refused_plan, wrong), "axes: expected none or 1");
  EXPECT_EQ(refused_plan.value, nullptr);
}

TEST_F(c_arguments, tensors) {
  const tensor out(made, {2, 8});
  invalid(run(nullptr, out), "in: expected a tensor, got null");
  tensor in(data, {2, 8});
  in->data = nullptr;
  invalid(run(in, out), "in: expected the address of 2 × 8 elements, got null");
  in->data = reinterpret_cast<unsigned char*>(data.data()) + 1;
  invalid(run(in, out), "in: expected an address at a multiple of 4 bytes");
  in->data = data.data();
  in->ndim = -1;
  invalid(run(in, out), "in: expected 0 to 64 axes, got -1");
  in->ndim = 1000;
  invalid(run(in, out), "in: expected 0 to 64 axes, got 1000");
  in->ndim = 0;
  invalid(run(in, out), "in: expected at least 1 axes, got 0 (a scalar)");
  in->ndim = 2;
  in->shape = nullptr;
  invalid(run(in, out), "in: expected a shape of 2 lengths, got null");
  in->shape = in.length.data();
  in.length = {2, -8};
  in->shape = in.length.data();
  invalid(run(in, out), "in: expected lengths of 0 or more, got -8 of axis 1");
  in.length[1] = 0;
  invalid(run(in, out), "in: expected 8 elements along axis 1, got 0");
  in.length[1] = 7;
  invalid(run(in, out), "in: expected 8 elements along axis 1, got 7");
  in.length = {3, 8};
  in->shape = in.length.data();
  invalid(run(in, out), "in: expected a batch of 2 signals, got 3");
  in.length = {std::numeric_limits<std::int64_t>::max(), 8};
  in->shape = in.length.data();
  invalid(run(in, out), "in: expected");
  in.length = {2, 8};
  in->shape = in.length.data();
  in.stride = {9, 1};
  in->strides = in.stride.data();
  invalid(run(in, out), "in: expected a distance of 8 from signal to signal, got 9");
  in.stride = {8, 2};
  in->strides = in.stride.data();
  invalid(run(in, out), "in: expected a stride of 1 along axis 1, got 2");
  in->strides = nullptr;
  in->dtype.bits = 128;
  invalid(run(in, out), "in: expected elements of complex64, got complex128");
  in->dtype = {BALLAST_DLPACK_FLOAT, 8, 1};
  invalid(run(in, out), "got DLPack's type code 2, 8 bits, 1 lanes");
  in->dtype = {BALLAST_DLPACK_COMPLEX, 64, 2};
  invalid(run(in, out), "2 lanes");
  in->dtype = {BALLAST_DLPACK_COMPLEX, 64, 1};
  invalid(ballast_fft_run(plan, 2, in, out, nullptr, seen, wrong), "direction: expected 0 (forward) or 1 (inverse), got 2");
  const tensor shifted(data.data() + 1, {2, 8});
  invalid(run(in, shifted), "same address or not to overlap");
  EXPECT_STREQ(ballast_error_problem(wrong), "fft_c2c_f32_n8_b2_fwd");
  EXPECT_EQ(made, std::vector<complex>(16, complex(7)));  // nothing was written
  EXPECT_EQ(run(in, out), BALLAST_OK) << message();
  EXPECT_EQ(message(), "");  // a success clears the error
}

TEST_F(c_arguments, devices) {
  const tensor out(made, {2, 8});
  tensor in(data, {2, 8});
  in->device = {BALLAST_DLPACK_CUDA, 0};
  invalid(run(in, out), "in: expected a CUDA device, as the tensor says, got memory that no CUDA driver in this process knows");
  in->device = {BALLAST_DLPACK_CUDA_MANAGED, 0};
  invalid(run(in, out), "CUDA managed memory");
  in->device.device_type = static_cast<decltype(in->device.device_type)>(10);
  refused(run(in, out), BALLAST_UNSUPPORTED, "DLPack's device type 10");
  in->device = {BALLAST_DLPACK_CUDA_HOST, 0};
  EXPECT_EQ(run(in, out), BALLAST_OK) << message();
  pending none;
  refused(ballast_fft_enqueue(plan, BALLAST_FORWARD, in, out, nullptr, &none, wrong), BALLAST_UNSUPPORTED, "expected the cuda backend");
  EXPECT_EQ(none.value, nullptr);
}

TEST_F(c_arguments, lists_of_devices) {
  options transforms, matrices;
  make("fft", transforms);
  make("qr", matrices);
  set(transforms, "shape", std::vector<std::int64_t>{4, 4});
  for (ballast_options* each : {transforms.value, matrices.value}) set(each, "devices", std::vector<std::int64_t>{0, 1});  // backend "cpu"
  fft_plan divided;
  refused(ballast_fft_plan_create(transforms, &divided, wrong), BALLAST_UNSUPPORTED, "expected backend cuda for devices, got cpu");
  set(transforms, "batch", 2);
  refused(ballast_fft_plan_create(transforms, &divided, wrong), BALLAST_UNSUPPORTED, "one array without gaps for devices");
  std::vector<double> values(6, 1.0);
  const tensor matrix(values, {3, 2}), wide(values, {2, 3});
  factors kept;
  refused(ballast_qr_factor(matrix, matrices, nullptr, &kept, nullptr, wrong), BALLAST_UNSUPPORTED, "expected backend cuda for devices");
  invalid(ballast_qr_factor(wide, matrices, nullptr, &kept, nullptr, wrong), "at least as many rows as columns, got 2 × 3");
  qr_plan whole;
  set(matrices, "rows", 3);
  set(matrices, "columns", 2);
  refused(ballast_qr_plan_create(matrices, &whole, wrong), BALLAST_UNSUPPORTED, "divided among ranks");
  set(matrices, "devices", std::vector<std::int64_t>{0, -1});
  invalid(ballast_qr_factor(matrix, matrices, nullptr, &kept, nullptr, wrong), "devices: expected numbers of devices, got -1");
}

TEST_F(c_arguments, structs) {
  options with;
  make("kmeans", with);
  set(with, "points", 4);
  set(with, "features", 1);
  set(with, "clusters", 2);
  kmeans_plan clusters;
  ASSERT_EQ(ballast_kmeans_plan_create(with, &clusters, wrong), BALLAST_OK) << message();
  std::vector<float> values = {0, 1, 10, 11};
  const tensor points(values, {4, 1});
  ballast_kmeans_data from{};
  ballast_kmeans_results to{};
  to.size = sizeof to;
  const auto fit = [&] { return ballast_kmeans_fit(clusters, &from, &to, nullptr, nullptr, wrong); };
  from.points = points;
  invalid(fit(), "data: size: expected sizeof of the struct");
  from.size = offsetof(ballast_kmeans_data, weights);  // an older header
  EXPECT_EQ(fit(), BALLAST_OK) << message();
  struct newer {
    ballast_kmeans_data known;
    const void* unknown;
  } later{};
  later.known = from;
  later.known.size = sizeof later;
  EXPECT_EQ(ballast_kmeans_fit(clusters, &later.known, &to, nullptr, nullptr, wrong), BALLAST_OK) << message();
  later.unknown = &later;
  refused(ballast_kmeans_fit(clusters, &later.known, &to, nullptr, nullptr, wrong), BALLAST_UNSUPPORTED, "the header is newer");
  from.size = sizeof from;
  invalid(ballast_kmeans_fit(clusters, nullptr, &to, nullptr, nullptr, wrong), "data");
  invalid(ballast_kmeans_fit(clusters, &from, nullptr, nullptr, nullptr, wrong), "results");
  std::vector<std::int64_t> wide(4);
  tensor labels(wide.data(), {4});
  to.labels = labels;
  labels->dtype = {BALLAST_DLPACK_INT, 64, 1};
  invalid(fit(), "results: labels: expected elements of");
  std::vector<std::int32_t> narrow(8);
  const tensor gaps(narrow, {4}, {2});
  to.labels = gaps;
  invalid(fit(), "results: labels: expected elements without gaps, a stride of 1 in axis 0, got 2");
  const tensor few(narrow, {3});
  to.labels = few;
  invalid(fit(), "labels: expected 4, got 3");
  // An empty operand is no operand that was left out.
  const tensor no_labels(narrow, {0}), no_centroids(values, {0, 1}), no_weights(values, {0});
  to.labels = no_labels;
  invalid(fit(), "results: labels: expected elements, got none (0)");
  to.labels = nullptr;
  to.centroids = no_centroids;
  invalid(fit(), "results: centroids: expected elements, got none (0 × 1)");
  to.centroids = nullptr;
  from.weights = no_weights;
  invalid(fit(), "weights: expected elements, got none (0)");
  from.weights = nullptr;
  from.points = nullptr;
  invalid(fit(), "points: expected a tensor, got null");
  std::vector<double> doubles(4);
  const tensor other(doubles, {4, 1});
  from.points = other;
  invalid(fit(), "points: expected elements of float32, got float64");
  const tensor flat(values, {4});
  from.points = flat;
  invalid(fit(), "points: expected 2 axes, or 3 for a batch, got 1 (4)");
  const tensor batch(values, {2, 2, 1});
  from.points = batch;
  invalid(fit(), "points: expected 1 data sets, got 2");
  values[1] = std::nanf("");
  from.points = points;
  invalid(fit(), "expected finite numbers, got nan");
}

TEST_F(c_arguments, matrices) {
  options with;
  make("qr", with);
  set(with, "rows", 3);
  set(with, "columns", 2);
  qr_plan of;
  ASSERT_EQ(ballast_qr_plan_create(with, &of, wrong), BALLAST_OK) << message();
  std::vector<double> A(6, 1.0), tau(2), b(3);
  std::vector<complex> numbers(6);
  const tensor matrix(A, {3, 2}), scalars(tau, {2}), complexes(numbers, {3, 2}), flat(A, {6}), transposed(A, {2, 3}), one(tau, {1}),
      right(b, {3});
  const auto geqrf = [&](const DLTensor* a, const DLTensor* t) { return ballast_qr_geqrf(of, a, t, nullptr, nullptr, wrong); };
  invalid(geqrf(nullptr, scalars), "A: expected a tensor, got null");
  invalid(geqrf(matrix, nullptr), "tau: expected a tensor, got null");
  invalid(geqrf(complexes, scalars), "A: expected elements of float64, got complex64");
  invalid(geqrf(flat, scalars), "A: expected 2 axes, or 3 for a batch, got 1 (6)");
  invalid(geqrf(transposed, scalars), "expected the plan's 3 × 2, got 2 × 3");
  invalid(geqrf(matrix, one), "tau: expected 2 elements, got 1");
  const tensor overlapping(A, {3, 2}, {1, 1});
  invalid(geqrf(overlapping, scalars), "strides that keep its elements apart");
  const tensor far(A, {3, 2}, {std::numeric_limits<std::int64_t>::max(), 1});
  invalid(geqrf(far, scalars), "strides within 63 bits");
  invalid(ballast_qr_ormqr(of, 2, 0, matrix, scalars, matrix, nullptr, nullptr, wrong), "side: expected 0 (left) or 1 (right), got 2");
  invalid(ballast_qr_ormqr(of, 0, -1, matrix, scalars, matrix, nullptr, nullptr, wrong), "transpose: expected");
  invalid(ballast_qr_gels(of, matrix, scalars, nullptr, nullptr, wrong), "B: expected max(m, n) = 3 rows, got 2");
  std::int64_t bytes = 0;
  invalid(ballast_qr_plan_workspace_bytes(of, 4, &bytes, wrong), "operation: expected 0 to 3, got 4");
  pending none;
  invalid(ballast_qr_enqueue_geqrf(of, matrix, scalars, nullptr, &none, wrong), "to enqueue, got 2");
  // All of A is 1: a column depends on the other.
  EXPECT_EQ(A, std::vector<double>(6, 1.0));
  std::vector<double> zeros(6, 0.0);
  const tensor zero(zeros, {3, 2});
  refused(ballast_qr_gels(of, zero, right, nullptr, nullptr, wrong), BALLAST_RANK_DEFICIENT, "full rank");
  EXPECT_STREQ(ballast_error_problem(wrong), "qr_f64_m3_n2");
  std::vector<double> dependent = {0.1, 0.3, 0.2, 0.6, 0.7, 2.1};
  const tensor multiple(dependent, {3, 2});
  refused(ballast_qr_gels(of, multiple, right, nullptr, nullptr, wrong), BALLAST_RANK_DEFICIENT, "rank");
  invalid(ballast_options_set_integer(with, "full_rank", 2, wrong), "full_rank: expected 0 or 1, got 2");
  factors made_factors;
  std::vector<std::int32_t> whole(6);
  const tensor integers(whole, {3, 2});
  invalid(ballast_qr_factor(integers, nullptr, nullptr, &made_factors, nullptr, wrong), "A: expected elements of float64, got int32");
  // A plan for complex numbers takes no others.
  set(with, "complex", 1);
  set(with, "precision", "f32");
  qr_plan of_complex;
  ASSERT_EQ(ballast_qr_plan_create(with, &of_complex, wrong), BALLAST_OK) << message();
  std::vector<std::complex<float>> few(2);
  const tensor complex_scalars(few, {2});
  invalid(ballast_qr_geqrf(of_complex, matrix, complex_scalars, nullptr, nullptr, wrong), "A: expected elements of complex64, got float64");
  std::int64_t order[2] = {};
  invalid(ballast_qr_geqp3(of_complex, matrix, order, complex_scalars, nullptr, nullptr, wrong),
          "A: expected elements of complex64, got float64");
  set(with, "scheme", "qr_updated");
  qr_plan none_such;
  refused(ballast_qr_plan_create(with, &none_such, wrong), BALLAST_UNSUPPORTED, "got qr_updated");
  invalid(ballast_options_set_integer(with, "complex", 2, wrong), "complex: expected 0 or 1, got 2");
  set(with, "scheme", "");
  set(with, "complex", std::int64_t{0});
  set(with, "precision", "f64");
  ASSERT_EQ(ballast_qr_factor(matrix, with, nullptr, &made_factors, nullptr, wrong), BALLAST_OK) << message();
  invalid(ballast_factors_r(made_factors, matrix, wrong), "R: expected 2 × 2, got 3 × 2");
  const tensor narrow(A, {2, 2}, {1, 1});
  invalid(ballast_factors_r(made_factors, narrow, wrong), "R: expected strides that keep the elements apart");
}

TEST_F(c_arguments, reports_and_calls) {
  ballast_summary summary{};
  summary.size = sizeof summary;
  invalid(ballast_report_summary(seen, &summary, wrong), "got one that no call has filled");
  char* text = nullptr;
  invalid(ballast_report_json(seen, &text, wrong), "no call has filled");
  EXPECT_EQ(text, nullptr);
  const tensor in(data, {2, 8}), out(made, {2, 8});
  ASSERT_EQ(run(in, out), BALLAST_OK);
  invalid(ballast_report_summary(seen, nullptr, wrong), "summary");
  summary.size = 4;
  invalid(ballast_report_summary(seen, &summary, wrong), "summary: size: expected sizeof of the struct");
  ballast_event event{};
  event.size = sizeof event;
  invalid(ballast_report_event(seen, 0, &event, wrong), "index: expected a number below the 0 events of the report, got 0");
  // A call that fails leaves no old report.
  EXPECT_EQ(run(in, nullptr), BALLAST_INVALID_ARGUMENT);
  summary.size = sizeof summary;
  invalid(ballast_report_summary(seen, &summary, wrong), "no call has filled");
  invalid(ballast_call_set_workspace(now, nullptr, 8, wrong), "workspace: expected an address for 8 bytes, got null");
  invalid(ballast_call_set_uncorrectable_is_error(now, 2, wrong), "expected 0 or 1, got 2");
  // Without the status the report is the only place that says that a result is wrong.
  ASSERT_EQ(ballast_call_set_uncorrectable_is_error(now, 0, wrong), BALLAST_OK);
  invalid(ballast_fft_run(plan, BALLAST_FORWARD, in, out, now, nullptr, wrong), "report: expected a report");
  EXPECT_EQ(ballast_fft_run(plan, BALLAST_FORWARD, in, out, now, seen, wrong), BALLAST_OK) << message();
  invalid(ballast_event_json(nullptr, &text, wrong), "event");
  invalid(ballast_event_json(&event, &text, wrong), "event: site: expected a text, got null");
  event.action = 7;
  invalid(ballast_event_json(&event, &text, wrong), "event: action: expected 0, 1 or 2, got 7");
}

TEST_F(c_arguments, plans_for_operands) {
  fft_plan like;
  std::vector<float> reals(48);
  const tensor in(data, {2, 8}), out(made, {2, 8}), real(reals, {2, 8}), three(made, {2, 2, 4}),
      integers(reinterpret_cast<std::int32_t*>(reals.data()), {2, 8});
  const auto create = [&](const DLTensor* a, const DLTensor* b) { return ballast_fft_plan_create_like(a, b, nullptr, &like, wrong); };
  invalid(create(nullptr, out), "in: expected a tensor, got null");
  invalid(create(real, real), "at least one of complex numbers");
  invalid(create(integers, out), "in: expected elements of float32, got int32");
  invalid(create(in, three), "the same number of axes, got 2 and 3");
  invalid(create(real, out), "expected 5 elements along axis 1 of out, got 8");
  std::vector<std::complex<double>> doubles(16);
  const tensor wide(doubles, {2, 8});
  invalid(create(in, wide), "one precision");
  const tensor far(data, {2, 2, 2}, {std::numeric_limits<std::int64_t>::max() / 4, 3, 1}), packed(made, {2, 2, 2});
  invalid(create(far, packed), "expected an extent of less than 2^63 bytes");
  const tensor scalar(data, {});
  invalid(create(scalar, scalar), "expected at least 1 axes, got 0 (a scalar)");
  EXPECT_EQ(like.value, nullptr);
}

}  // namespace
}  // namespace ballast::test
