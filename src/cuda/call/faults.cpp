// Uploads the faults as one array of plain structs. Kernels also write to it: they count the visits of each fault.
#include "cuda/call/faults.hpp"

#include <vector>

namespace ballast::cuda {

fault_list::fault_list(const std::shared_ptr<device>& on, const inject::active_injector& injector, stream order) {
  const std::uint64_t sites = inject::armed_sites(injector);
  if (sites == 0) return;
  const std::vector<inject::device_fault> list = inject::faults_for_device(injector);
  memory_ = device_buffer(on, static_cast<std::int64_t>(list.size() * sizeof(inject::device_fault)), order);
  on->copy(memory_.data(), list.data(), memory_.bytes(), order);
  faults_ = {static_cast<inject::device_fault*>(memory_.data()), static_cast<std::int32_t>(list.size()), sites};
}

}  // namespace ballast::cuda
