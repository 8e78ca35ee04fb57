// Callbacks of the C interface: events of injected faults, uncorrectable ones, progress, and a call that is cancelled.
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "c/support.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"

namespace ballast::test {
namespace {

struct seen_events {
  int count = 0;
  std::string site, device, json;
  std::int32_t action = -1;
};

void note_event(void* user, const ballast_event* event) {
  auto& seen = *static_cast<seen_events*>(user);
  ++seen.count;
  seen.site = event->site;
  seen.device = event->device;
  seen.action = event->action;
  char* text = nullptr;
  EXPECT_EQ(ballast_event_json(event, &text, nullptr), BALLAST_OK);
  seen.json = text;
  ballast_free(text);
}

struct progress_until {
  std::int64_t last;  // ends the call there
  std::int64_t calls = 0, total = 0;
  double value = 0;
  std::string unit = {};
};

std::int32_t go_on_until(void* user, const ballast_progress* progress) {
  auto& until = *static_cast<progress_until*>(user);
  ++until.calls;
  until.total = progress->total;
  until.unit = progress->unit;
  until.value = progress->value;
  return progress->done >= until.last ? 1 : 0;
}

class c_callbacks : public c_interface {
 protected:
  void make_fft() {
    options with;
    make("fft", with);
    set(with, "shape", std::vector<std::int64_t>{64});
    ASSERT_EQ(ballast_fft_plan_create(with, &plan, wrong), BALLAST_OK) << message();
    for (std::size_t i = 0; i < 64; ++i) in[i] = {std::sin(static_cast<float>(i)), 1.0F};
  }
  std::int32_t run() {
    const tensor from(in, {64}), to(out, {64});
    return ballast_fft_run(plan, BALLAST_FORWARD, from, to, now, seen, wrong);
  }

  fft_plan plan;
  std::vector<std::complex<float>> in = std::vector<std::complex<float>>(64), out = in;
};

TEST_F(c_callbacks, event_of_an_injected_fault) {
  make_fft();
  ASSERT_EQ(run(), BALLAST_OK) << message();
  const std::vector<std::complex<float>> clean = out;
  seen_events events;
  ASSERT_EQ(ballast_call_set_on_event(now, note_event, &events, wrong), BALLAST_OK);
  const inject::plan faults({inject::parse_request("site=fft.stage,model=bit_flip,bit=29,seed=1")});
  {
    const inject::scope inside(&faults);
    ASSERT_EQ(run(), BALLAST_OK) << message();
  }
  EXPECT_EQ(out, clean);
  EXPECT_EQ(events.count, 1);
  EXPECT_EQ(events.device, "cpu");
  const ballast_summary summary = this->summary();
  EXPECT_EQ(summary.detected, 1U);
  EXPECT_EQ(summary.events, 1);
  EXPECT_TRUE(summary.verdict == BALLAST_CORRECTED || summary.verdict == BALLAST_RECOMPUTED) << summary.verdict;
  ballast_event event{};
  event.size = sizeof event;
  ASSERT_EQ(ballast_report_event(seen, 0, &event, wrong), BALLAST_OK) << message();
  EXPECT_EQ(event.site, events.site);
  EXPECT_EQ(event.action, events.action);
  EXPECT_EQ(event.index, 0);
  EXPECT_GT(event.residual, event.threshold);
  EXPECT_GT(event.time, 1.7e9);
  EXPECT_EQ(event.multiprocessor, -1);
  EXPECT_EQ(event.damaged, 0);
  EXPECT_NE(events.json.find("\"site\":\"" + events.site + "\""), std::string::npos) << events.json;
  char* text = nullptr;
  ASSERT_EQ(ballast_report_json(seen, &text, wrong), BALLAST_OK) << message();
  EXPECT_NE(std::strstr(text, events.json.c_str()), nullptr) << text;
  ballast_free(text);
  // A record of an older header gets what fits.
  ballast_event older{};
  older.size = offsetof(ballast_event, residual);
  ASSERT_EQ(ballast_report_event(seen, 0, &older, wrong), BALLAST_OK);
  EXPECT_EQ(older.residual, 0);
  EXPECT_STREQ(older.site, events.site.c_str());

  report total;
  ASSERT_EQ(ballast_report_create(&total, wrong), BALLAST_OK);
  ASSERT_EQ(ballast_report_merge(total, seen, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_report_merge(total, seen, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_report_merge(total, total, wrong), BALLAST_OK) << message();
  ballast_summary all{};
  all.size = sizeof all;
  ASSERT_EQ(ballast_report_summary(total, &all, wrong), BALLAST_OK);
  EXPECT_EQ(all.detected, 4U);
  EXPECT_EQ(all.events, 4);

  ASSERT_EQ(ballast_call_set_on_event(now, nullptr, nullptr, wrong), BALLAST_OK);
  {
    const inject::scope inside(&faults);
    ASSERT_EQ(run(), BALLAST_OK) << message();
  }
  EXPECT_EQ(events.count, 1);
}

TEST_F(c_callbacks, uncorrectable_fault) {
  make_fft();
  const inject::plan faults({inject::parse_request("site=fft.stage,model=stuck_at,seed=3")});
  const inject::scope inside(&faults);
  EXPECT_EQ(run(), BALLAST_UNCORRECTABLE);
  EXPECT_EQ(ballast_error_status(wrong), BALLAST_UNCORRECTABLE);
  EXPECT_STREQ(ballast_error_problem(wrong), "fft_c2c_f32_n64_b1_fwd");
  ballast_summary summary = this->summary();
  EXPECT_EQ(summary.verdict, BALLAST_VERDICT_UNCORRECTABLE);
  EXPECT_GT(summary.uncorrectable, 0U);
  ASSERT_EQ(ballast_call_set_uncorrectable_is_error(now, 0, wrong), BALLAST_OK);
  EXPECT_EQ(run(), BALLAST_OK) << message();
  summary = this->summary();
  EXPECT_EQ(summary.verdict, BALLAST_VERDICT_UNCORRECTABLE);
}

TEST_F(c_callbacks, an_exception_of_a_callback_stays_inside) {
  make_fft();
  ASSERT_EQ(ballast_call_set_on_event(
                now, [](void*, const ballast_event*) { throw std::runtime_error("no room in the log"); }, nullptr, wrong),
            BALLAST_OK);
  const inject::plan faults({inject::parse_request("site=fft.stage,model=bit_flip,bit=29,seed=1")});
  const inject::scope inside(&faults);
  EXPECT_EQ(run(), BALLAST_INTERNAL_ERROR);
  EXPECT_EQ(message(), "no room in the log");
}

TEST_F(c_callbacks, progress_and_cancelling_of_kmeans) {
  constexpr int m = 600;
  std::vector<double> values(2 * m);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i * i));
  for (const char* const backend : {"cpu", "reference"}) {
    std::vector<std::int32_t> labels(m, -7);
    std::vector<double> centroids(16, -7);
    const tensor points(values, {m, 2}), label(labels, {m}), centroid(centroids, {8, 2});
    options with;
    make("kmeans", with);
    set(with, "backend", backend);
    ASSERT_EQ(ballast_options_set_problem(with, "kmeans_f64_m600_n2_k8", nullptr, wrong), BALLAST_OK) << message();
    kmeans_plan clusters;
    ASSERT_EQ(ballast_kmeans_plan_create(with, &clusters, wrong), BALLAST_OK) << message();
    double inertia = -7;
    std::int32_t iterations = -7, stopped = -7;
    const ballast_kmeans_data data = {sizeof data, points, nullptr, nullptr, nullptr, nullptr};
    const ballast_kmeans_results results = {sizeof results, centroid, label, &inertia, &iterations, &stopped};
    progress_until until{.last = 3};
    ASSERT_EQ(ballast_call_set_on_progress(now, go_on_until, &until, wrong), BALLAST_OK);
    EXPECT_EQ(ballast_kmeans_fit(clusters, &data, &results, now, seen, wrong), BALLAST_CANCELLED);
    EXPECT_EQ(message(), "the progress callback ended the call");
    EXPECT_STREQ(ballast_error_problem(wrong), "kmeans_f64_m600_n2_k8");
    EXPECT_EQ(until.calls, 3);
    EXPECT_EQ(until.total, 300);
    EXPECT_EQ(until.unit, "iteration");
    EXPECT_GT(until.value, 0);
    // Nothing was stored.
    EXPECT_EQ(labels, std::vector<std::int32_t>(m, -7));
    EXPECT_EQ(centroids, std::vector<double>(16, -7));
    EXPECT_EQ(inertia, -7);
    EXPECT_EQ(iterations, -7);
    EXPECT_EQ(stopped, -7);
    ballast_summary summary{};
    summary.size = sizeof summary;
    EXPECT_EQ(ballast_report_summary(seen, &summary, wrong), BALLAST_INVALID_ARGUMENT);
    // The plan goes on to work, and the callback does not change the result.
    until = {.last = 1000};
    ASSERT_EQ(ballast_kmeans_fit(clusters, &data, &results, now, seen, wrong), BALLAST_OK) << message();
    EXPECT_EQ(until.calls, iterations);
    const std::vector<std::int32_t> with_callback = labels;
    ASSERT_EQ(ballast_kmeans_fit(clusters, &data, &results, nullptr, seen, wrong), BALLAST_OK) << message();
    EXPECT_EQ(labels, with_callback);
  }
}

TEST_F(c_callbacks, cancelling_of_qr) {
  constexpr int m = 300, n = 200;
  std::vector<double> original(m * n);
  for (std::size_t i = 0; i < original.size(); ++i) original[i] = std::sin(static_cast<double>(i * i));
  for (const char* const backend : {"cpu", "reference"}) {
    for (const char* const scheme : {"block_checksum", "qr_update"}) {
      std::vector<double> A = original, tau(n, -7), b(m, 1);
      const tensor matrix(A, {m, n}, {1, m}), scalars(tau, {n}), right(b, {m});
      options with;
      make("qr", with);
      set(with, "backend", backend);
      set(with, "scheme", scheme);
      set(with, "rows", m);
      set(with, "columns", n);
      qr_plan plan;
      ASSERT_EQ(ballast_qr_plan_create(with, &plan, wrong), BALLAST_OK) << message();
      progress_until until{.last = 2};
      ASSERT_EQ(ballast_call_set_on_progress(now, go_on_until, &until, wrong), BALLAST_OK);
      EXPECT_EQ(ballast_qr_geqrf(plan, matrix, scalars, now, seen, wrong), BALLAST_CANCELLED);
      EXPECT_EQ(until.calls, 2);
      EXPECT_EQ(until.unit, "block column");
      EXPECT_EQ(A, original);
      EXPECT_EQ(tau, std::vector<double>(n, -7));
      EXPECT_EQ(ballast_qr_gels(plan, matrix, right, now, seen, wrong), BALLAST_CANCELLED);
      EXPECT_EQ(A, original);
      EXPECT_EQ(b, std::vector<double>(m, 1));
      // Without protection there is no copy to give back: A has changed.
      set(with, "protection", "off");
      qr_plan unprotected;
      ASSERT_EQ(ballast_qr_plan_create(with, &unprotected, wrong), BALLAST_OK) << message();
      EXPECT_EQ(ballast_qr_geqrf(unprotected, matrix, scalars, now, seen, wrong), BALLAST_CANCELLED);
      EXPECT_NE(A, original);
      A = original;
      // The plan goes on to work.
      until = {.last = 1000};
      ASSERT_EQ(ballast_qr_geqrf(plan, matrix, scalars, now, seen, wrong), BALLAST_OK) << message();
      EXPECT_EQ(until.calls, until.total);
      EXPECT_NE(A, original);
    }
  }
}

}  // namespace
}  // namespace ballast::test
