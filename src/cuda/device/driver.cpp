// Loads the CUDA driver and binds its functions.
#include "cuda/device/driver.hpp"

#include <new>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/system/library.hpp"

namespace ballast::cuda::driver {

std::string bind(void* library, api& functions) {
  std::string missing;
  const auto find = [&](auto& target, const char* name, bool needed = true) {
    if (!find_function(library, name, target) && needed && missing.empty()) missing = name;
  };
  find(functions.init, "cuInit");
  find(functions.driver_version, "cuDriverGetVersion");
  find(functions.error_name, "cuGetErrorName");
  find(functions.error_string, "cuGetErrorString");
  find(functions.device_count, "cuDeviceGetCount");
  find(functions.device_get, "cuDeviceGet");
  find(functions.device_name, "cuDeviceGetName");
  find(functions.device_memory, "cuDeviceTotalMem_v2");
  find(functions.memory_info, "cuMemGetInfo_v2");
  find(functions.device_attribute, "cuDeviceGetAttribute");
  find(functions.default_pool, "cuDeviceGetDefaultMemPool");
  find(functions.can_reach, "cuDeviceCanAccessPeer");
  find(functions.pool_open, "cuMemPoolSetAccess");
  find(functions.pool_get, "cuMemPoolGetAttribute");
  find(functions.pool_set, "cuMemPoolSetAttribute");
  find(functions.primary_retain, "cuDevicePrimaryCtxRetain");
  find(functions.context_current, "cuCtxGetCurrent");
  find(functions.context_push, "cuCtxPushCurrent_v2");
  find(functions.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  find(functions.context_pop, "cuCtxPopCurrent_v2");
  find(functions.context_device, "cuCtxGetDevice");
  find(functions.context_id, "cuCtxGetId");
  find(functions.context_priorities, "cuCtxGetStreamPriorityRange");
  find(functions.module_load, "cuModuleLoadDataEx");
  find(functions.module_unload, "cuModuleUnload");
  find(functions.module_function, "cuModuleGetFunction");
  find(functions.function_get, "cuFuncGetAttribute");
  find(functions.function_set, "cuFuncSetAttribute");
  find(functions.launch, "cuLaunchKernelEx");
  find(functions.resident_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  find(functions.resident_clusters, "cuOccupancyMaxActiveClusters");
  find(functions.allocate, "cuMemAllocFromPoolAsync");
  find(functions.release, "cuMemFreeAsync");
  find(functions.copy, "cuMemcpyAsync");
  find(functions.copy_2d, "cuMemcpy2DAsync_v2");
  find(functions.fill, "cuMemsetD8Async");
  find(functions.pointer_get, "cuPointerGetAttributes");
  find(functions.host_allocate, "cuMemHostAlloc");
  find(functions.host_release, "cuMemFreeHost");
  find(functions.stream_create, "cuStreamCreateWithPriority");
  find(functions.stream_destroy, "cuStreamDestroy_v2");
  find(functions.stream_capturing, "cuStreamIsCapturing");
  find(functions.stream_wait, "cuStreamWaitEvent");
  find(functions.stream_synchronize, "cuStreamSynchronize");
  find(functions.stream_query, "cuStreamQuery");
  find(functions.event_create, "cuEventCreate");
  find(functions.event_destroy, "cuEventDestroy_v2");
  find(functions.event_record, "cuEventRecord");
  find(functions.event_query, "cuEventQuery");
  find(functions.event_synchronize, "cuEventSynchronize");
  find(functions.event_elapsed, "cuEventElapsedTime");
  find(functions.parameter, "cuFuncGetParamInfo", false);
  return missing;
}

namespace {

availability look() {
  availability made;
  const opened_library library = open_library(k_driver_library);
  if (library.handle == nullptr) {
    made.why = fmt::format("no NVIDIA driver: {} was not found", k_driver_library.files[0]);
    return made;
  }
  const std::string missing = bind(library.handle, made.functions);
  if (made.functions.driver_version != nullptr && made.functions.driver_version(&made.version) != k_success) made.version = 0;
  if (!missing.empty() || made.version < k_oldest_version) {
    made.why = fmt::format("the NVIDIA driver is too old: expected one for CUDA {}.{} or later, got one for CUDA {}.{}{}",
                           k_oldest_version / 1000, k_oldest_version % 1000 / 10, made.version / 1000, made.version % 1000 / 10,
                           missing.empty() ? "" : fmt::format(", without {}", missing));
    return made;
  }
  const result started = made.functions.init(0);
  if (started == k_success) {
    const result counted = made.functions.device_count(&made.devices);
    if (counted != k_success)
      made.why = fmt::format("CUDA devices cannot be counted: {}", describe(made.functions, counted));
    else if (made.devices == 0)
      made.why = "no CUDA device is visible";
  } else if (started == k_no_device) {
    made.why = "no CUDA device is visible";
  } else {
    made.why = fmt::format("the NVIDIA driver does not start: {}", describe(made.functions, started));
  }
  return made;
}

}  // namespace

const availability& available() {
  static const availability found = look();
  return found;
}

std::string describe(const api& functions, result got) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (functions.error_name(got, &name) != k_success || name == nullptr) return fmt::format("error {}", got);
  if (functions.error_string(got, &text) != k_success || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

void check(const api& functions, result got, const char* call) {
  if (got == k_success) return;
  if (got == k_out_of_memory) throw std::bad_alloc();
  throw device_error(fmt::format("CUDA: {}: expected success, got {}", call, describe(functions, got)));
}

}  // namespace ballast::cuda::driver
