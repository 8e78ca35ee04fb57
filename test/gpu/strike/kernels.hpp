// Struck kernels: compiled, rewritten and assembled, and the device that runs them instead of the library's own.
// Layer: test program. The host chooses one strike in one launch of a call; everything else of the call is the library's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/device/device.hpp"
#include "cuda/jit/jit.hpp"
#include "strike/ptx.hpp"

namespace ballast::gpu_check {

// The struck kernel of a request and its sites, as entries of a bundle; no kernel_cache confuses them with the request itself. `assemble`:
// to machine code, by the ptxas of a toolkit; otherwise PTX, which the driver assembles at load time. Throws ballast::error.
struct struck_kernel {
  cuda::image code;                // text: request_text(…)
  std::vector<std::string> sites;  // struck_ptx::sites
};
struck_kernel make_struck_kernel(const cuda::kernel_request& wanted, const std::string& architecture, bool assemble);
std::vector<cuda::image> entries_of(const struck_kernel& made);
// Returns the kernel that entries_of() has put into a bundle; nullopt if the bundle has no entry for this request.
std::optional<struck_kernel> find_struck_kernel(const cuda::bundle& in, const cuda::kernel_request& wanted,
                                                const std::string& architecture);

// Returns the ptxas beside the compiler named by CUDA_HOME, CUDA_PATH, the path or the usual folder; empty if there is none.
std::filesystem::path assembler();

// A temporary folder, removed at the end.
class scratch_folder {
 public:
  scratch_folder();
  ~scratch_folder();
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// One launch of a call.
struct launch_seen {
  std::size_t kernel = 0;  // index in the device's list of kernels
  std::int64_t blocks = 0;
  unsigned threads = 0;
};

// The device. Calls are struck after `arm`, until `disarm`.
class struck_device {
 public:
  // Uses the current context and these kernels; any other kernel is the library's own, and cannot be struck. At most one instance at a
  // time.
  explicit struck_device(std::vector<struck_kernel> kernels);
  ~struck_device();
  struck_device(const struck_device&) = delete;
  struck_device& operator=(const struck_device&) = delete;

  const std::shared_ptr<cuda::device>& device() const { return device_; }
  const std::vector<struck_kernel>& kernels() const { return kernels_; }
  // The loaded kernels that cannot be struck, by their expressions.
  std::vector<std::string> others() const;

  // The launches since the last arm() or disarm(), in their order.
  std::vector<launch_seen> launches() const;
  // Strikes launch number `launch` of the next calls, counted from now.
  void arm(std::size_t launch, const strike_control& order);
  void disarm();
  // Returns the answer of the armed launch; waits for it. Returns nullopt if there was none.
  std::optional<strike_control> answer() const;

 private:
  std::vector<struck_kernel> kernels_;
  std::shared_ptr<void> folder_;  // folder of the bundle, which is read when a kernel is loaded
  std::unique_ptr<cuda::kernel_cache> cache_;
  std::shared_ptr<cuda::device> device_;
};

// Returns the name of the template of a kernel: "copy_kernel" of "ballast::qr::cuda::copy_kernel<float>".
std::string short_name(const struck_kernel& of);

}  // namespace ballast::gpu_check
