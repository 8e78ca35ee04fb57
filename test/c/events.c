/* A C program over the library that can inject faults: the callback sees the event, the result is right, and a fault that persists is a
   status. faults.cpp injects. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <ballast/ballast.h>

void inject_faults(const char* request);

enum { n = 64 };

static int events = 0;

static void on_event(void* user, const ballast_event* event) {
  strncpy(user, event->site, 63);
  ++events;
  printf("event: %s at %lld, residual %g over %g\n", event->site, (long long)event->index, event->residual, event->threshold);
}

int main(void) {
  static float in[2 * n], clean[2 * n], out[2 * n];
  char site[64] = "";
  int64_t shape[1] = {n};
  const DLDataType type = {BALLAST_DLPACK_COMPLEX, 64, 1};
  const DLDevice host = {BALLAST_DLPACK_CPU, 0};
  const DLTensor from = {in, host, 1, type, shape, NULL, 0}, first = {clean, host, 1, type, shape, NULL, 0},
                 second = {out, host, 1, type, shape, NULL, 0};
  ballast_error* error = NULL;
  ballast_report* report = NULL;
  ballast_call* call = NULL;
  ballast_fft_plan* plan = NULL;
  ballast_summary summary = {0};
  int i, failed = 0;

  summary.size = sizeof summary;
  for (i = 0; i < 2 * n; ++i) in[i] = (float)sin(i);
  if (ballast_error_create(&error) || ballast_report_create(&report, error) || ballast_call_create(&call, error)) return 1;
  if (ballast_fft_plan_create_like(&from, &second, NULL, &plan, error)) return 1;
  if (ballast_call_set_on_event(call, on_event, site, error)) return 1;
  if (ballast_fft_run(plan, BALLAST_FORWARD, &from, &first, call, report, error)) return 1;
  if (events != 0) failed = 2;

  inject_faults("site=fft.stage,model=bit_flip,bit=29,seed=1");
  if (ballast_fft_run(plan, BALLAST_FORWARD, &from, &second, call, report, error)) return 1;
  if (ballast_report_summary(report, &summary, error)) return 1;
  if (events != 1 || summary.events != 1 || site[0] == '\0' || memcmp(clean, out, sizeof out) != 0) failed = 3;
  printf("%s: %s\n", summary.problem, ballast_verdict_name(summary.verdict));

  inject_faults("site=fft.stage,model=stuck_at,seed=3");
  if (ballast_fft_run(plan, BALLAST_FORWARD, &from, &second, call, report, error) != BALLAST_UNCORRECTABLE) failed = 4;
  if (ballast_report_summary(report, &summary, error) || summary.verdict != BALLAST_VERDICT_UNCORRECTABLE) failed = 5;

  ballast_fft_plan_destroy(plan);
  ballast_call_destroy(call);
  ballast_report_destroy(report);
  ballast_error_destroy(error);
  return failed;
}
