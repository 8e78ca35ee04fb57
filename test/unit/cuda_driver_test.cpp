// The declarations of the CUDA driver's interface against the toolkit's, where there is one; and what is said where there is no driver.
#include "cuda/device/driver.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <filesystem>
#include <new>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#ifdef BALLAST_CUDA_H
#include <cuda.h>
#endif

namespace ballast::cuda::driver {
namespace {

#ifdef BALLAST_CUDA_H
static_assert(CUDA_SUCCESS == k_success);
static_assert(CUDA_ERROR_INVALID_VALUE == k_invalid_value);
static_assert(CUDA_ERROR_OUT_OF_MEMORY == k_out_of_memory);
static_assert(CUDA_ERROR_NO_DEVICE == k_no_device);
static_assert(CUDA_ERROR_NO_BINARY_FOR_GPU == k_no_binary);
static_assert(sizeof(CUresult) == sizeof(result));
static_assert(sizeof(CUdevice) == sizeof(device_id));
static_assert(sizeof(CUdeviceptr) == sizeof(address));
static_assert(sizeof(CUcontext) == sizeof(context) && sizeof(CUmodule) == sizeof(module_handle));
static_assert(sizeof(CUfunction) == sizeof(function) && sizeof(CUmemoryPool) == sizeof(memory_pool));
static_assert(sizeof(CUstream) == sizeof(stream_handle) && sizeof(CUevent) == sizeof(event_handle));
static_assert(CUDA_ERROR_NOT_READY == k_not_ready);
static_assert(CU_STREAM_NON_BLOCKING == k_non_blocking && CU_EVENT_DISABLE_TIMING == k_untimed);

static_assert(sizeof(CUdevice_attribute) == sizeof(device_attribute));
static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == static_cast<int>(k_multiprocessors));
static_assert(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE == static_cast<int>(k_l2_cache));
static_assert(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR == static_cast<int>(k_threads_per_multiprocessor));
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == static_cast<int>(k_capability_major));
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == static_cast<int>(k_capability_minor));
static_assert(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR == static_cast<int>(k_shared_per_multiprocessor));
static_assert(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR == static_cast<int>(k_registers_per_multiprocessor));
static_assert(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN == static_cast<int>(k_shared_per_block_opt_in));
static_assert(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED == static_cast<int>(k_has_memory_pools));
static_assert(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH == static_cast<int>(k_has_clusters));

static_assert(sizeof(CUfunction_attribute) == sizeof(function_attribute));
static_assert(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES == static_cast<int>(k_static_shared));
static_assert(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES == static_cast<int>(k_local));
static_assert(CU_FUNC_ATTRIBUTE_NUM_REGS == static_cast<int>(k_registers));
static_assert(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == static_cast<int>(k_max_dynamic_shared));
static_assert(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION == static_cast<int>(k_programmatic_serialization));
static_assert(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT == static_cast<int>(k_shared_carveout));
static_assert(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED == static_cast<int>(k_nonportable_cluster));

static_assert(sizeof(CUpointer_attribute) == sizeof(pointer_attribute));
static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == static_cast<int>(k_memory_type));
static_assert(CU_POINTER_ATTRIBUTE_IS_MANAGED == static_cast<int>(k_is_managed));
static_assert(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == static_cast<int>(k_device_ordinal));
static_assert(CU_MEMORYTYPE_DEVICE == k_memory_on_device);
static_assert(sizeof(CUmemorytype) == sizeof(k_memory_on_device));

static_assert(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD == k_release_threshold);
static_assert(sizeof(CUmemPool_attribute) == sizeof(int) && sizeof(cuuint64_t) == sizeof(std::uint64_t));
static_assert(CU_MEM_LOCATION_TYPE_DEVICE == k_place_device && CU_MEM_ACCESS_FLAGS_PROT_READWRITE == k_read_and_write);
static_assert(sizeof(CUmemAccessDesc) == sizeof(pool_access) && offsetof(CUmemAccessDesc, flags) == offsetof(pool_access, allowed));
static_assert(offsetof(CUmemAccessDesc, location.id) == offsetof(pool_access, place));
static_assert(CU_JIT_ERROR_LOG_BUFFER == static_cast<int>(k_error_log));
static_assert(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES == static_cast<int>(k_error_log_bytes));
static_assert(sizeof(CUjit_option) == sizeof(int));

static_assert(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION == k_cluster_dimension);
static_assert(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE == k_cluster_policy);
static_assert(CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING == k_cluster_balances);
static_assert(offsetof(CUlaunchAttribute, value.clusterSchedulingPolicyPreference) == offsetof(launch_attribute, value.flag));
static_assert(sizeof(CUlaunchAttribute) == sizeof(launch_attribute) && alignof(CUlaunchAttribute) <= alignof(launch_attribute) * 2);
static_assert(offsetof(CUlaunchAttribute, id) == offsetof(launch_attribute, id));
static_assert(offsetof(CUlaunchAttribute, value) == offsetof(launch_attribute, value));
static_assert(offsetof(CUlaunchAttribute, value.clusterDim.x) == offsetof(launch_attribute, value.cluster[0]));
static_assert(offsetof(CUlaunchAttribute, value.clusterDim.z) == offsetof(launch_attribute, value.cluster[2]));
static_assert(CU_MEMORYTYPE_UNIFIED == static_cast<int>(k_any_memory));
static_assert(sizeof(CUDA_MEMCPY2D) == sizeof(copied_rectangle) && sizeof(CUmemorytype) == sizeof(copied_side::type));
static_assert(offsetof(CUDA_MEMCPY2D, srcMemoryType) == offsetof(copied_rectangle, from.type));
static_assert(offsetof(CUDA_MEMCPY2D, srcDevice) == offsetof(copied_rectangle, from.device));
static_assert(offsetof(CUDA_MEMCPY2D, srcPitch) == offsetof(copied_rectangle, from.pitch));
static_assert(offsetof(CUDA_MEMCPY2D, dstXInBytes) == offsetof(copied_rectangle, to.x));
static_assert(offsetof(CUDA_MEMCPY2D, dstDevice) == offsetof(copied_rectangle, to.device));
static_assert(offsetof(CUDA_MEMCPY2D, dstPitch) == offsetof(copied_rectangle, to.pitch));
static_assert(offsetof(CUDA_MEMCPY2D, WidthInBytes) == offsetof(copied_rectangle, width));
static_assert(offsetof(CUDA_MEMCPY2D, Height) == offsetof(copied_rectangle, height));
static_assert(sizeof(CUlaunchConfig) == sizeof(launch_config));
static_assert(offsetof(CUlaunchConfig, gridDimX) == offsetof(launch_config, grid[0]));
static_assert(offsetof(CUlaunchConfig, gridDimZ) == offsetof(launch_config, grid[2]));
static_assert(offsetof(CUlaunchConfig, blockDimX) == offsetof(launch_config, block[0]));
static_assert(offsetof(CUlaunchConfig, blockDimZ) == offsetof(launch_config, block[2]));
static_assert(offsetof(CUlaunchConfig, sharedMemBytes) == offsetof(launch_config, shared_bytes));
static_assert(offsetof(CUlaunchConfig, hStream) == offsetof(launch_config, stream));
static_assert(offsetof(CUlaunchConfig, attrs) == offsetof(launch_config, attributes));
static_assert(offsetof(CUlaunchConfig, numAttrs) == offsetof(launch_config, attribute_count));
#endif

#ifdef BALLAST_CUDA_STUB
// The toolkit's stub exports what a driver of its version exports.
TEST(cuda_driver, a_library_of_the_toolkit_has_every_function) {
  if (!std::filesystem::exists(BALLAST_CUDA_STUB)) GTEST_SKIP() << BALLAST_CUDA_STUB << " was there when this was configured";
  void* stub = dlopen(BALLAST_CUDA_STUB, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(stub, nullptr) << dlerror();
  api functions{};
  EXPECT_EQ(bind(stub, functions), "");
  EXPECT_NE(functions.parameter, nullptr);
  dlclose(stub);
}
#endif

TEST(cuda_driver, a_library_that_is_none_is_named_by_what_it_lacks) {
  void* self = dlopen(nullptr, RTLD_NOW);
  ASSERT_NE(self, nullptr);
  api functions{};
  EXPECT_EQ(bind(self, functions), "cuInit");
  dlclose(self);
}

TEST(cuda_driver, says_why_there_is_nothing_or_finds_devices) {
  const availability& found = available();
  EXPECT_EQ(found.why.empty(), found.devices > 0) << found.why;
  if (void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); library == nullptr) {
    EXPECT_EQ(found.why, "no NVIDIA driver: libcuda.so.1 was not found");
    EXPECT_EQ(found.version, 0);
  } else {
    EXPECT_GT(found.version, 0);
  }
}

TEST(cuda_driver, failures_carry_the_drivers_words) {
  api functions{};
  functions.error_name = [](result got, const char** text) {
    *text = "CUDA_ERROR_SOMETHING";
    return got == 7 ? k_success : k_invalid_value;
  };
  functions.error_string = [](result, const char** text) {
    *text = "something happened";
    return k_success;
  };
  EXPECT_NO_THROW(check(functions, k_success, "cuThing"));
  EXPECT_THROW(check(functions, k_out_of_memory, "cuThing"), std::bad_alloc);
  EXPECT_EQ(describe(functions, 8), "error 8");
  try {
    check(functions, 7, "cuThing");
    FAIL() << "no exception";
  } catch (const error& seen) {
    EXPECT_STREQ(seen.what(), "CUDA: cuThing: expected success, got CUDA_ERROR_SOMETHING (something happened)");
  }
}

}  // namespace
}  // namespace ballast::cuda::driver
