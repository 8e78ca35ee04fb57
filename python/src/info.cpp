// The description of the library and of the machine.
#include "core.hpp"

namespace ballast_python {

namespace {

nb::dict information() {
  const ballast::library_information seen = unlocked(ballast::information);
  nb::dict to;
  to["version"] = seen.version;
  nb::list backends, devices;
  for (const ballast::backend each : seen.backends) backends.append(std::string(to_string(each)));
  for (const ballast::device_information& each : seen.devices) {
    nb::dict device;
    device["name"] = each.name;
    device["compute_capability"] = each.compute_capability;
    device["multiprocessors"] = each.multiprocessors;
    device["memory"] = each.memory;
    devices.append(device);
  }
  to["backends"] = backends;
  to["devices"] = devices;
  nb::dict cuda;
  cuda["unavailable"] = seen.cuda.unavailable;
  cuda["driver"] = seen.cuda.driver;
  cuda["compiler"] = seen.cuda.compiler;
  cuda["without_compiler"] = seen.cuda.without_compiler;
  cuda["bundle"] = seen.cuda.bundle;
  cuda["bundle_kernels"] = seen.cuda.bundle_kernels;
  cuda["without_bundle"] = seen.cuda.without_bundle;
  cuda["cache"] = seen.cuda.cache;
  cuda["cache_state"] = seen.cuda.cache_state;
  to["cuda"] = cuda;
  to["simd"] = seen.simd;
  to["blas"] = seen.blas;
  to["better_blas_kernels"] = ballast::better_blas_kernels();
  to["threads"] = seen.threads;
  return to;
}

}  // namespace

void add_information(nb::module_& m) {
  m.def("information", information);
  m.attr("version") =
      std::to_string(BALLAST_VERSION_MAJOR) + "." + std::to_string(BALLAST_VERSION_MINOR) + "." + std::to_string(BALLAST_VERSION_PATCH);
}

}  // namespace ballast_python
