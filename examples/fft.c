// Finds two tones in a signal of 1000 samples: a real transform, protected, with its report.
// Prints their amplitudes. Exit status 0 if they are those that the signal has, 1 otherwise.
#include <ballast/ballast.h>
#include <math.h>
#include <stdio.h>

enum { samples = 1000, half = samples / 2 + 1 };

static double signal[samples], spectrum[half][2];

static double amplitude(int frequency) { return 2 * hypot(spectrum[frequency][0], spectrum[frequency][1]) / samples; }

int main(void) {
  // A tensor says where its elements lie: address, device, lengths, type. Without strides it is row-major without gaps.
  int64_t of_signal[] = {samples}, of_spectrum[] = {half};
  const DLDevice host = {BALLAST_DLPACK_CPU, 0};
  const DLDataType real = {BALLAST_DLPACK_FLOAT, 64, 1}, complex = {BALLAST_DLPACK_COMPLEX, 128, 1};
  const DLTensor in = {signal, host, 1, real, of_signal, NULL, 0}, out = {spectrum, host, 1, complex, of_spectrum, NULL, 0};
  ballast_error* error = NULL;
  ballast_report* report = NULL;
  ballast_fft_plan* plan = NULL;
  ballast_summary seen = {0};
  seen.size = sizeof seen;

  const double pi = acos(-1);
  for (int j = 0; j < samples; ++j) signal[j] = 3 * sin(2 * pi * 50 * j / samples) + cos(2 * pi * 120 * j / samples);

  // A plan is made once for a problem, here for operands like these. It is immutable, and any number of threads may use it.
  int failed = ballast_error_create(&error) || ballast_report_create(&report, error) ||
               ballast_fft_plan_create_like(&in, &out, NULL, &plan, error) ||
               ballast_fft_run(plan, BALLAST_FORWARD, &in, &out, NULL, report, error) || ballast_report_summary(report, &seen, error);
  if (failed) {
    fprintf(stderr, "%s: %s\n", ballast_status_name(ballast_error_status(error)), ballast_error_message(error));
  } else {
    printf("amplitude %g at 50, %g at 120\n%s: %s, %d checks\n", amplitude(50), amplitude(120), seen.problem,
           ballast_verdict_name(seen.verdict), (int)seen.checks);
    failed = fabs(amplitude(50) - 3) > 1e-12 || fabs(amplitude(120) - 1) > 1e-12 || seen.checks == 0;
  }
  ballast_fft_plan_destroy(plan);
  ballast_report_destroy(report);
  ballast_error_destroy(error);
  return failed;
}
