// The part of the CUDA driver's interface that Ballast uses, declared here and bound at run time. So the library builds without a toolkit,
// and the same binary runs on machines without a driver.
// Layer: foundation.
// Source: the binary interface of libcuda.so.1 since driver 12.0; test/unit/cuda_driver_test.cpp compares it with the toolkit's cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace ballast::cuda::driver {

using result = int;  // CUresult
inline constexpr result k_success = 0;
inline constexpr result k_invalid_value = 1;
inline constexpr result k_out_of_memory = 2;
inline constexpr result k_no_device = 100;
inline constexpr result k_no_binary = 209;
inline constexpr result k_not_ready = 600;

using device_id = int;                // CUdevice
using address = unsigned long long;   // CUdeviceptr
using context = struct context_tag*;  // CUcontext
using module_handle = struct module_tag*;
using function = struct function_tag*;
using memory_pool = struct memory_pool_tag*;
using stream_handle = void*;  // CUstream
using event_handle = struct event_tag*;

// CUdevice_attribute
enum device_attribute : int {
  k_multiprocessors = 16,
  k_l2_cache = 38,
  k_threads_per_multiprocessor = 39,
  k_capability_major = 75,
  k_capability_minor = 76,
  k_shared_per_multiprocessor = 81,
  k_registers_per_multiprocessor = 82,
  k_shared_per_block_opt_in = 97,
  k_has_memory_pools = 115,
  k_has_clusters = 120,
};

// CUfunction_attribute. Sizes in bytes; "local" is the memory of a thread for register spills and dynamically indexed arrays.
enum function_attribute : int {
  k_static_shared = 1,
  k_local = 3,
  k_registers = 4,
  k_max_dynamic_shared = 8,
  k_shared_carveout = 9,  // percent of the multiprocessor's largest shared memory
  k_nonportable_cluster = 14,
};

// CUpointer_attribute, CUmemorytype
enum pointer_attribute : int { k_memory_type = 2, k_is_managed = 8, k_device_ordinal = 9 };
inline constexpr unsigned k_memory_on_device = 2;

// CUmemPool_attribute: bytes (std::uint64_t) that a pool keeps instead of releasing them at a synchronisation.
inline constexpr int k_release_threshold = 4;
// Bytes that the pool has reserved on the device, and bytes of these that are in use.
inline constexpr int k_reserved_now = 5;
inline constexpr int k_used_now = 7;

// CUmemAccessDesc: how a device may use the memory of a pool.
inline constexpr int k_place_device = 1;    // CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int k_read_and_write = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
struct pool_access {
  int place_type;
  int place;
  int allowed;
};

// CUstream_flags, CUevent_flags
inline constexpr unsigned k_non_blocking = 1;  // a stream without implicit synchronisation with the default stream
inline constexpr unsigned k_untimed = 2;

// CUjit_option
enum load_option : int { k_error_log = 5, k_error_log_bytes = 6 };

// CUlaunchAttributeID, CUlaunchAttribute, CUlaunchConfig
inline constexpr unsigned k_cluster_dimension = 4;
inline constexpr unsigned k_cluster_policy = 5;
inline constexpr int k_cluster_balances = 2;  // value of k_cluster_policy: several blocks of a cluster may share a multiprocessor
inline constexpr unsigned k_programmatic_serialization = 6;
struct launch_attribute {
  unsigned id;
  unsigned reserved;
  union {
    char size[64];
    unsigned cluster[3];
    int flag;
  } value;
};
struct launch_config {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  stream_handle stream;
  launch_attribute* attributes;
  unsigned attribute_count;
};

// CUDA_MEMCPY2D: copies `height` rows of `width` bytes, whose starts are `pitch` bytes apart. Both sides are unified addresses: the driver
// finds out whether they are on host or device.
inline constexpr int k_any_memory = 4;  // CU_MEMORYTYPE_UNIFIED
struct copied_side {
  std::size_t x = 0, y = 0;
  int type = 0;
  const void* host = nullptr;
  address device = 0;
  void* array = nullptr;
  std::size_t pitch = 0;
};
struct copied_rectangle {
  copied_side from, to;
  std::size_t width, height;
};

// The functions of the driver. bind() in driver.cpp has the names that the library exports. It has many members because each function that
// the library calls is one.
struct api {
  result (*init)(unsigned flags);
  result (*driver_version)(int* version);  // 1000 · major + 10 · minor of the newest toolkit that the driver supports
  result (*error_name)(result, const char** text);
  result (*error_string)(result, const char** text);
  result (*device_count)(int* count);
  result (*device_get)(device_id*, int ordinal);
  result (*device_name)(char* text, int bytes, device_id);
  result (*device_memory)(std::size_t* bytes, device_id);
  result (*memory_info)(std::size_t* free, std::size_t* total);  // for the current context
  result (*device_attribute)(int* value, driver::device_attribute, device_id);
  result (*default_pool)(memory_pool*, device_id);
  result (*can_reach)(int* does, device_id from, device_id memory_of);
  result (*pool_open)(memory_pool, const pool_access*, std::size_t count);
  result (*pool_get)(memory_pool, int attribute, void* value);
  result (*pool_set)(memory_pool, int attribute, void* value);
  result (*primary_retain)(context*, device_id);
  result (*context_current)(context*);
  result (*context_push)(context);
  result (*exchange_capture_mode)(int* mode);  // the mode of the calling thread
  result (*context_pop)(context*);
  result (*context_device)(device_id*);
  result (*context_id)(context, unsigned long long* id);  // unique among all contexts of a process
  result (*context_priorities)(int* least, int* greatest);
  result (*module_load)(module_handle*, const void* image, unsigned options, const int* keys, void** values);
  result (*module_unload)(module_handle);
  result (*module_function)(function*, module_handle, const char* name);
  result (*function_get)(int* value, function_attribute, function);
  result (*function_set)(function, function_attribute, int value);
  result (*launch)(const launch_config*, function, void** arguments, void** extra);
  result (*resident_blocks)(int* blocks, function, int threads, std::size_t shared);
  result (*resident_clusters)(int* clusters, function, const launch_config*);
  result (*allocate)(address*, std::size_t bytes, memory_pool, stream_handle);
  result (*release)(address, stream_handle);
  result (*copy)(address to, address from, std::size_t bytes, stream_handle);
  result (*copy_2d)(const copied_rectangle*, stream_handle);
  result (*fill)(address, unsigned char value, std::size_t bytes, stream_handle);
  result (*pointer_get)(unsigned count, const pointer_attribute* attributes, void** values, address);
  result (*host_allocate)(void** memory, std::size_t bytes, unsigned flags);
  result (*host_release)(void*);
  result (*stream_create)(stream_handle*, unsigned flags, int priority);
  result (*stream_destroy)(stream_handle);
  result (*stream_capturing)(stream_handle, int* status);  // 0: not captured
  result (*stream_wait)(stream_handle, event_handle, unsigned flags);
  result (*stream_synchronize)(stream_handle);
  result (*stream_query)(stream_handle);  // k_not_ready until its work has ended
  result (*event_create)(event_handle*, unsigned flags);
  result (*event_destroy)(event_handle);
  result (*event_record)(event_handle, stream_handle);
  result (*event_query)(event_handle);  // k_not_ready until its stream has passed it
  result (*event_synchronize)(event_handle);
  result (*event_elapsed)(float* milliseconds, event_handle first, event_handle last);
  // Since 12.4; null before.
  result (*parameter)(function, std::size_t index, std::size_t* offset, std::size_t* bytes);
};

// Fills `functions` from a library handle of dlopen. Returns the name of the first missing function, or "".
std::string bind(void* library, api& functions);

// The state of the driver, which is loaded, bound and initialised once, at the first call of available().
struct availability {
  api functions{};
  int version = 0;  // version of the driver; 0: no driver
  int devices = 0;
  std::string why;  // the reason why no device can be used, in one sentence; empty if one can
};
const availability& available();

inline constexpr int k_oldest_version = 12000;

// Throws if the call failed: std::bad_alloc if memory is exhausted, otherwise ballast::error with the driver's message.
void check(const api& functions, result got, const char* call);

// Returns name and message of a result: "CUDA_ERROR_INVALID_VALUE (invalid argument)".
std::string describe(const api& functions, result got);

inline constexpr int k_capture_relaxed = 2;

// Makes a context current, and lets this thread call what the capture of a graph by another stream or thread would forbid (it would also
// end that capture); the destructor restores both. Work on a stream that is itself captured is recorded as before.
class in_context {
 public:
  in_context(const api& functions, context wanted) : in_context(functions, wanted, std::nothrow) {
    check(functions, status_, "cuCtxPushCurrent");
  }
  // For code that must not throw: status() returns the result.
  in_context(const api& functions, context wanted, std::nothrow_t) noexcept : functions_(functions) {
    context current = nullptr;
    status_ = functions_.exchange_capture_mode(&mode_);
    exchanged_ = status_ == k_success;
    if (exchanged_) status_ = functions_.context_current(&current);
    if (status_ != k_success || current == wanted) return;
    status_ = functions_.context_push(wanted);
    pushed_ = status_ == k_success;
  }
  in_context(const in_context&) = delete;
  in_context& operator=(const in_context&) = delete;
  ~in_context() {
    context ours = nullptr;
    if (pushed_) functions_.context_pop(&ours);
    if (exchanged_) functions_.exchange_capture_mode(&mode_);
  }
  result status() const { return status_; }

 private:
  const api& functions_;
  result status_ = k_success;
  bool pushed_ = false, exchanged_ = false;
  int mode_ = k_capture_relaxed;  // afterwards: the mode before
};

}  // namespace ballast::cuda::driver
