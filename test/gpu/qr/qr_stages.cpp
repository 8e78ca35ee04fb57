// QR as an algorithm of gpu-check: its problems and their kernels.
#include "qr_stages.hpp"

#include <algorithm>
#include <complex>
#include <string>

#include <ballast/error.hpp>

#include "../../strike/subjects/subject.hpp"
#include "algorithm.hpp"
#include "each_case.hpp"
#include "inject/injector.hpp"
#include "qr/cuda/kernels/batch_kernels.hpp"
#include "qr/cuda/kernels/choice_kernels.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "qr/cuda/kernels/recovery_kernels.hpp"

namespace ballast::gpu_check {
namespace factors {

namespace {

void record_subject(test::recording_device& on, const std::string& name);

int record(test::recording_device& on, const settings& wanted) {
  if (wanted.only_kinds()) {
    for (const std::string& name : wanted.tokens.empty() ? kinds_set(wanted.quick) : wanted.tokens) {
      on.user = name;
      record_subject(on, name);
    }
    return 0;
  }
  on.user = "qr";
  for (const ballast::cuda::kernel_request& each : qr::cuda::kernel_names<float>::all(on.about(), inject::active_injector::enabled))
    (void)on.load(each);
  for (const ballast::cuda::kernel_request& each : qr::cuda::kernel_names<double>::all(on.about(), inject::active_injector::enabled))
    (void)on.load(each);
  for (const auto& more : {qr::cuda::recovery_names<float>::all(on.about()), qr::cuda::recovery_names<double>::all(on.about()),
                           qr::cuda::choice_names<float>::all(on.about(), inject::active_injector::enabled),
                           qr::cuda::choice_names<double>::all(on.about(), inject::active_injector::enabled)}) {
    for (const ballast::cuda::kernel_request& each : more) (void)on.load(each);
  }
  for (const ballast::cuda::kernel_request& each : qr::cuda::batch_kernels<float>(on.about(), inject::active_injector::enabled))
    (void)on.load(each);
  for (const ballast::cuda::kernel_request& each : qr::cuda::batch_kernels<double>(on.about(), inject::active_injector::enabled))
    (void)on.load(each);
  return 0;
}

// Several panels; tall panels by Cholesky QR; column pivoting; right-hand sides; a small matrix and a batch, by a part of a warp, a warp, a
// block.
// Complex matrices: the same by the engine for large ones, also by the scheme qr_update, and batches by the kernels for them.
std::vector<std::string> strike_set(bool quick) {
  std::vector<std::string> made = in_both_precisions(
      {"geqrf_%_m300_n160",   "geqrf_%_m1500_n64",    "geqp3_%_m300_n160",   "ormqr_%_m300_n160",      "ormqr_right_%_m300_n160",
       "ormqr_%_m1500_n64",   "orgqr_%_m300_n160",    "orgqr_%_m1500_n64",   "gels_%_m300_n160",       "gels_%_m160_n300",
       "gels_%_m1500_n64",    "geqrf_%_m160_n96",     "ormqr_%_m160_n96",    "ormqr_right_%_m160_n96", "orgqr_%_m160_n96",
       "gels_%_m160_n96",     "gels_%_m64_n96",       "geqrf_%_m32_n24_b24", "geqrf_%_m100_n64_b4",    "ormqr_%_m32_n24_b24",
       "orgqr_%_m32_n24_b24", "gels_%_m32_n24_b24",   "geqrf_%_m300_n8_b24", "geqrf_%_m1000_n20_b4",   "geqrf_%_m9000_n6_b6",
       "ormqr_%_m300_n8_b24", "orgqr_%_m1000_n20_b4", "gels_%_m300_n8_b24"},
      quick);
  for (const char* type : {"c128", "c64"}) {
    for (const char* shape : {"geqrf_%_m300_n160", "geqrf_%_m1500_n64", "geqp3_%_m300_n160", "qr_update_geqrf_%_m300_n160",
                              "ormqr_%_m300_n160", "ormqr_right_%_m300_n160", "orgqr_%_m300_n160", "gels_%_m300_n160", "gels_%_m160_n300",
                              "geqrf_%_m32_n24_b24", "geqrf_%_m100_n64_b4", "ormqr_%_m32_n24_b24", "ormqr_right_%_m32_n24_b24",
                              "orgqr_%_m32_n24_b24", "gels_%_m32_n24_b24", "gels_%_m24_n32_b24"}) {
      std::string name = shape;
      made.push_back(name.replace(name.find('%'), 1, type));
      if (quick) break;
    }
    if (quick) break;
  }
  return made;
}

// S: as for kernel_names. Number: the same in the kernels for batches.
template <class S, class Number = S>
void record_kernels(test::recording_device& on, const qr::problem& what, bool qr_update, bool pivoted) {
  if (what.batch == 1)
    for (const ballast::cuda::kernel_request& each : qr::cuda::kernel_names<S>::all(on.about(), false)) (void)on.load(each);
  if (pivoted)
    for (const ballast::cuda::kernel_request& each : qr::cuda::choice_names<S>::all(on.about(), false)) (void)on.load(each);
  if (qr_update)
    for (const ballast::cuda::kernel_request& each : qr::cuda::recovery_names<S>::all(on.about())) (void)on.load(each);
  // The steps of gels are those of the others; its right-hand sides have more rows than columns or fewer.
  for (const qr::cuda::batch_work step : {qr::cuda::batch_work::factor, qr::cuda::batch_work::apply, qr::cuda::batch_work::solve}) {
    const bool solves = step == qr::cuda::batch_work::solve;
    const std::int64_t columns = std::min(what.rows, what.columns), rows = solves ? columns : std::max(what.rows, what.columns);
    const int which = qr::cuda::batch_policy_for(step, rows, columns, on.about(), what.complex);
    if (which >= 0) (void)on.load(qr::cuda::batch_kernel<Number>(step, which, false));
    if constexpr (!qr::is_complex<S>) {
      if (which < 0 && what.batch > 1) {
        const qr::cuda::tall_choice tall = qr::cuda::choose_tall(step, rows, columns, sizeof(S), on.about());
        (void)on.load(qr::cuda::tall_kernel<S>(step, tall.size, on.about(), false));
      }
    }
  }
}

void record_subject(test::recording_device& on, const std::string& name) {
  const strike::subject_name parsed = strike::parse_subject(name);
  const qr::problem what = qr::parse_token(parsed.token);
  const bool single = what.precision == precision::f32, qr_update = !parsed.scheme.empty(), pivoted = parsed.operation == "geqp3";
  if (what.complex) {
    single ? record_kernels<std::complex<float>, qr::cuda::complex_number<float>>(on, what, qr_update, pivoted)
           : record_kernels<std::complex<double>, qr::cuda::complex_number<double>>(on, what, qr_update, pivoted);
  } else {
    single ? record_kernels<float>(on, what, qr_update, pivoted) : record_kernels<double>(on, what, qr_update, pivoted);
  }
}

void list(const settings& wanted) {
  print_problems("strike", strike_set(wanted.quick), [](const std::string& name) { return strike::parse_subject(name); });
  print_problems("accuracy", verified_set(wanted.quick), qr::parse_token);
  print_problems("sanitize", sanitized_set(), qr::parse_token);
  print_problems("bench", timed_set(wanted.quick), qr::parse_token);
  print_problems("calls", called_set(wanted.quick), qr::parse_token);
  print_problems("repairs", repaired_set(wanted.quick), qr::parse_token);
  print_problems("kinds", kinds_set(wanted.quick), [](const std::string& name) { return strike::parse_subject(name); });
  print_problems("paper", paper_set(wanted.quick), qr::parse_token);
}

void check_token(std::string_view text, std::string_view stage) {
  if (stage == "kinds") return check_kind_token(text);
  if (qr::parse_token(text).complex && stage != "strike" && stage != "bench" && stage != "calls" && stage != "first_call")
    throw invalid_argument_error(std::string(text) + ": expected real numbers, which this stage takes, got complex ones");
}

}  // namespace
}  // namespace factors

const algorithm& qr_algorithm() {
  static const algorithm made = {.name = "qr",
                                 .stages = {{"verify", factors::verify},
                                            {"sanitize", factors::sanitize},
                                            {"bench", factors::bench},
                                            {"calls", factors::calls},
                                            {"first_call", factors::first_call},
                                            {"kinds", factors::kinds},
                                            {"repairs", factors::repairs},
                                            {"paper", factors::paper}},
                                 .record = factors::record,
                                 .list = factors::list,
                                 .check_token = factors::check_token,
                                 .strike_set = factors::strike_set,
                                 .record_subject = factors::record_subject};
  return made;
}

}  // namespace ballast::gpu_check
