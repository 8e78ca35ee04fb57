// One array of plain structs, which kernels also write: how often each fault was visited.
#include "cuda/faults.hpp"

namespace ballast::cuda {

void fault_list::upload(const std::shared_ptr<device>& on, const std::vector<inject::device_fault>& list, std::uint64_t sites,
                        stream order) {
  memory_ = device_buffer(on, static_cast<std::int64_t>(list.size() * sizeof(inject::device_fault)), order);
  on->copy(memory_.data(), list.data(), memory_.bytes(), order);
  faults_ = {static_cast<inject::device_fault*>(memory_.data()), static_cast<std::int32_t>(list.size()), sites};
}

}  // namespace ballast::cuda
