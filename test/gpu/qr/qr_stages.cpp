// QR as an algorithm of gpu-check: its problems and their kernels.
#include "qr_stages.hpp"

#include "algorithm.hpp"
#include "each_case.hpp"
#include "inject/injector.hpp"
#include "qr/cuda/kernels/batch_kernels.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "qr/cuda/kernels/recovery_kernels.hpp"

namespace ballast::gpu_check {
namespace factors {

namespace {

int record(test::recording_device& on, const settings&) {
  on.user = "qr";
  for (const ballast::cuda::kernel_request& each : qr::cuda::kernel_names<float>::all(on.about(), inject::active_injector::enabled))
    (void)on.load(each);
  for (const ballast::cuda::kernel_request& each : qr::cuda::kernel_names<double>::all(on.about(), inject::active_injector::enabled))
    (void)on.load(each);
  for (const auto& more : {qr::cuda::recovery_names<float>::all(on.about()), qr::cuda::recovery_names<double>::all(on.about())}) {
    for (const ballast::cuda::kernel_request& each : more) (void)on.load(each);
  }
  for (const ballast::cuda::kernel_request& each : qr::cuda::batch_kernels<float>(on.about(), inject::active_injector::enabled))
    (void)on.load(each);
  for (const ballast::cuda::kernel_request& each : qr::cuda::batch_kernels<double>(on.about(), inject::active_injector::enabled))
    (void)on.load(each);
  return 0;
}

void list(const settings& wanted) {
  print_problems("accuracy", verified_set(wanted.quick), qr::parse_token);
  print_problems("sanitize", sanitized_set(), qr::parse_token);
  print_problems("bench", timed_set(wanted.quick), qr::parse_token);
  print_problems("repairs", repaired_set(wanted.quick), qr::parse_token);
  print_problems("paper", paper_set(wanted.quick), qr::parse_token);
}

}  // namespace
}  // namespace factors

const algorithm& qr_algorithm() {
  static const algorithm made = {.name = "qr",
                                 .stages = {{"verify", factors::verify},
                                            {"sanitize", factors::sanitize},
                                            {"bench", factors::bench},
                                            {"repairs", factors::repairs},
                                            {"paper", factors::paper}},
                                 .record = factors::record,
                                 .list = factors::list,
                                 .check_token = [](std::string_view text) { (void)qr::parse_token(text); },
                                 .strike_set = [](bool) { return std::vector<std::string>(); }};
  return made;
}

}  // namespace ballast::gpu_check
