// Arrays in the memory of a CUDA device, and work that runs on a stream.
#include "core.hpp"

namespace ballast_python {

namespace {

using lengths = std::vector<std::int64_t>;

// Describes memory that another library owns: its elements by DLPack's code and bits, strides in elements. The caller keeps it alive.
auto tensor(std::uintptr_t address, const std::vector<std::size_t>& shape, const lengths& strides, int code, int bits, int device) {
  if (shape.size() != strides.size())
    throw ballast::invalid_argument_error("tensor: expected one stride for each axis, got " + std::to_string(strides.size()) + " for " +
                                          std::to_string(shape.size()));
  const nb::dlpack::dtype type{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
  return nb::ndarray<nb::array_api>(std::bit_cast<void*>(address), shape.size(), shape.data(), nb::none(), strides.data(), type,
                                    nb::device::cuda::value, device);
}

}  // namespace

void pending::add(ballast::pending_report part) { parts_.push_back(std::move(part)); }

ballast::report pending::get() {
  ballast::report all = parts_.front().get();
  for (std::size_t i = 1; i < parts_.size(); ++i) ballast_python::add(all, parts_[i].get());
  return all;
}

void add_device(nb::module_& m) {
  m.def("tensor", tensor);
  nb::class_<pending>(m, "Pending").def("get", [](pending& work) { return unlocked([&] { return work.get(); }); });
}

}  // namespace ballast_python
