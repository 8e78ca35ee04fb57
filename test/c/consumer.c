/* A user's program in C99 over the C interface alone. Compiled as C++ too. Exit status 0 if all results are right. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef WITH_DLPACK
#include <dlpack/dlpack.h>
#endif

#include <ballast/ballast.h>

static const double pi = 3.14159265358979323846;

static DLTensor tensor(void* data, int32_t axes, int64_t* lengths, int bits, int complex_numbers) {
  DLTensor made;
  memset(&made, 0, sizeof made);
  made.data = data;
#ifdef WITH_DLPACK
  made.device.device_type = kDLCPU;
#else
  made.device.device_type = BALLAST_DLPACK_CPU;
#endif
  made.ndim = axes;
  made.dtype.code = (uint8_t)(complex_numbers ? BALLAST_DLPACK_COMPLEX : BALLAST_DLPACK_FLOAT);
  made.dtype.bits = (uint8_t)bits;
  made.dtype.lanes = 1;
  made.shape = lengths;
  return made;
}

static int say(const char* what, ballast_error* error) {
  printf("%s: %s: %s\n", what, ballast_status_name(ballast_error_status(error)), ballast_error_message(error));
  return 1;
}

/* Two rows of a real signal, transformed along the second axis, against the sum. */
static int transform(ballast_error* error, ballast_report* report) {
  enum { rows = 2, n = 20, half = n / 2 + 1 };
  double in[rows * n], out[rows * half * 2];
  int64_t real[2] = {rows, n}, spectrum[2] = {rows, half};
  const DLTensor from = tensor(in, 2, real, 64, 0), to = tensor(out, 2, spectrum, 128, 1);
  ballast_fft_plan* plan = NULL;
  ballast_summary summary;
  int i, j, k, wrong = 0;
  for (i = 0; i < rows * n; ++i) in[i] = sin(i * i + 1.0);
  if (ballast_fft_plan_create_like(&from, &to, NULL, &plan, error)) return say("plan", error);
  if (ballast_fft_run(plan, BALLAST_FORWARD, &from, &to, NULL, report, error)) return say("run", error);
  for (i = 0; i < rows; ++i) {
    for (k = 0; k < half; ++k) {
      double re = 0, im = 0;
      for (j = 0; j < n; ++j) {
        re += in[i * n + j] * cos(2 * pi * j * k / (double)n);
        im -= in[i * n + j] * sin(2 * pi * j * k / (double)n);
      }
      wrong += fabs(out[2 * (i * half + k)] - re) > 1e-12 || fabs(out[2 * (i * half + k) + 1] - im) > 1e-12;
    }
  }
  memset(&summary, 0, sizeof summary);
  summary.size = sizeof summary;
  if (ballast_report_summary(report, &summary, error)) return say("summary", error);
  printf("%s: %s, %d wrong\n", summary.problem, ballast_verdict_name(summary.verdict), wrong);
  ballast_fft_plan_destroy(plan);
  return wrong || summary.verdict != BALLAST_CLEAN || summary.checks == 0;
}

static int32_t count(void* user, const ballast_progress* progress) {
  ++*(int*)user;
  return progress->done >= 100000;
}

/* Two clusters on a line. */
static int cluster(ballast_error* error, ballast_report* report) {
  float points[6] = {0, 0.1f, 0.2f, 10, 10.1f, 10.2f};
  int32_t labels[6], iterations = 0, stopped = -1;
  double inertia = 0;
  int64_t matrix[2] = {6, 1}, vector[1] = {6};
  const DLTensor of = tensor(points, 2, matrix, 32, 0);
  DLTensor to = tensor(labels, 1, vector, 32, 0);
  ballast_options* options = NULL;
  ballast_kmeans_plan* plan = NULL;
  ballast_call* call = NULL;
  ballast_kmeans_data data;
  ballast_kmeans_results results;
  int calls = 0;
  to.dtype.code = BALLAST_DLPACK_INT;
  memset(&data, 0, sizeof data);
  memset(&results, 0, sizeof results);
  data.size = sizeof data;
  data.points = &of;
  results.size = sizeof results;
  results.labels = &to;
  results.inertia = &inertia;
  results.iterations = &iterations;
  results.stopped = &stopped;
  if (ballast_options_create("kmeans", &options, error) || ballast_options_set_integer(options, "points", 6, error) ||
      ballast_options_set_integer(options, "features", 1, error) || ballast_options_set_integer(options, "clusters", 2, error) ||
      ballast_options_set_integer(options, "seed", 1, error) || ballast_kmeans_plan_create(options, &plan, error))
    return say("plan", error);
  if (ballast_call_create(&call, error) || ballast_call_set_on_progress(call, count, &calls, error)) return say("call", error);
  if (ballast_kmeans_fit(plan, &data, &results, call, report, error)) return say("fit", error);
  printf("labels %d %d %d %d %d %d, inertia %g, %s after %d iterations, %d seen\n", labels[0], labels[1], labels[2], labels[3], labels[4],
         labels[5], inertia, ballast_stop_name(stopped), iterations, calls);
  ballast_call_destroy(call);
  ballast_kmeans_plan_destroy(plan);
  ballast_options_destroy(options);
  return labels[0] != labels[1] || labels[1] != labels[2] || labels[3] != labels[4] || labels[4] != labels[5] || labels[0] == labels[3] ||
         fabs(inertia - 0.04) > 1e-6 || calls != iterations;
}

/* y = 1 + 2 t through three points. */
static int fit_a_line(ballast_error* error, ballast_report* report) {
  double A[6] = {1, 0, 1, 1, 1, 2}, b[3] = {1, 3, 5}, x[2] = {0, 0};
  int64_t matrix[2] = {3, 2}, right[1] = {3}, solution[1] = {2};
  const DLTensor of = tensor(A, 2, matrix, 64, 0), to = tensor(b, 1, right, 64, 0), target = tensor(x, 1, solution, 64, 0);
  ballast_factors* factors = NULL;
  ballast_options* options = NULL;
  ballast_qr_plan* plan = NULL;
  if (ballast_qr_factor(&of, NULL, NULL, &factors, report, error)) return say("factor", error);
  if (ballast_factors_solve(factors, &to, &target, NULL, report, error)) return say("solve", error);
  if (ballast_options_create("qr", &options, error) || ballast_options_set_problem(options, "qr_f64_m3_n2", NULL, error) ||
      ballast_qr_plan_create(options, &plan, error) || ballast_qr_gels(plan, &of, &to, NULL, report, error))
    return say("gels", error);
  printf("x = %.15g %.15g and %.15g %.15g\n", x[0], x[1], b[0], b[1]);
  ballast_qr_plan_destroy(plan);
  ballast_options_destroy(options);
  ballast_factors_destroy(factors);
  return fabs(x[0] - 1) > 1e-13 || fabs(x[1] - 2) > 1e-13 || fabs(b[0] - 1) > 1e-13 || fabs(b[1] - 2) > 1e-13;
}

/* A wrong name. */
static int refused(ballast_error* error) {
  ballast_options* options = NULL;
  if (ballast_options_create("kmeans", &options, error)) return say("options", error);
  if (ballast_options_set_integer(options, "n_clusters", 3, error) != BALLAST_INVALID_ARGUMENT) return 1;
  printf("refused, as it must be: %s\n", ballast_error_message(error));
  ballast_options_destroy(options);
  return strstr(ballast_error_message(error), "\"n_clusters\"") == NULL;
}

int main(void) {
  ballast_error* error = NULL;
  ballast_report* report = NULL;
  int failed;
  if (ballast_abi_version() / 10000 != BALLAST_ABI_VERSION / 10000) return 1;
  if (ballast_error_create(&error) || ballast_report_create(&report, error)) return 1;
  failed = transform(error, report) + 2 * cluster(error, report) + 4 * fit_a_line(error, report) + 8 * refused(error);
  ballast_report_destroy(report);
  ballast_error_destroy(error);
  printf("Ballast %s from C: %s\n", ballast_version(), failed ? "WRONG" : "works");
  return failed;
}
