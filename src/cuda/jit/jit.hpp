// Returns the machine code of a kernel_request: from memory, from the bundle that was built with the library, from the cache on disk, or
// from the compiler, in this order. Needs no GPU and no driver.
// Layer: foundation. docs/design/cuda.md has the reasons.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device/device.hpp"
#include "cuda/jit/digest.hpp"
#include "cuda/jit/nvrtc.hpp"
#include "cuda/system/private_folder.hpp"

namespace ballast::cuda {

// A compiled kernel.
struct image {
  std::string text = {};  // request_text of the kernel: everything that was compiled
  int toolkit = 0;        // the version of the compiler: 1000 · major + 10 · minor
  std::string name = {};  // the name of the kernel in `code`
  std::string code = {};  // cubin or PTX
  nvrtc::resources uses = {};

  bool operator==(const image&) const = default;
};

// Returns the text that determines the code, except for the toolkit: sources (with all included ones), options, header, expression and
// architecture. The same text means the same code, so a search for an image compares the whole text.
std::string request_text(const kernel_request& wanted, std::string_view architecture);

// Returns the architectures whose machine code a device of this compute capability runs, best first: its own with architecture-specific
// instructions ("sm_90a", "sm_100a"), its own, and earlier ones of the same major version.
std::vector<std::string> runnable_architectures(int major, int minor);

// Returns the architecture to compile for: the first of runnable_architectures that NVRTC knows, or else the newest PTX ("compute_…") that
// is not newer than the device. Empty if NVRTC knows only newer ones.
std::string target_architecture(int major, int minor, std::span<const int> known);

// Returns the architectures whose PTX a bundle may have for a device of this compute capability, best first. The driver translates it,
// which takes about as long as a compilation: it serves where there is no compiler.
std::vector<std::string> translatable_architectures(int major, int minor);

// Returns the capabilities that a bundle assumes for devices of "sm_80" (A100), "sm_90a" (H100 and H200) or "sm_100a" (B200), or for those
// that get PTX, "compute_90": of compute capability 12.0 (RTX 5090), which have the least shared memory. Policies may depend on them.
// Throws invalid_argument_error for other architectures.
capabilities typical_capabilities(std::string_view architecture);

// Returns the registers per thread that the request allows: its own budget, or the limit from the launch bound.
std::int64_t register_budget(const kernel_request& wanted, const capabilities& on);

// Returns the reason why an image exceeds the budgets of registers and spills, keeps an array in memory instead of registers, needs more
// shared memory than a block has, or has fewer loads than the request wants; empty if it keeps all limits. A number that the compiler did
// not report counts as exceeded.
std::string over_budget(const image& compiled, const kernel_request& wanted, const capabilities& on);

// An image as the bundle and the cache store it, with a digest of its body.
std::string pack(const image& value);
// Returns the image; nothing if `bytes` is not exactly one complete, undamaged entry.
std::optional<image> unpack(std::string_view bytes);

// A file of packed images, stored contiguously.
class bundle {
 public:
  // Reads the index. If the file is damaged or truncated, entries after the damage are ignored. Without file or path the bundle is empty.
  explicit bundle(std::filesystem::path file = {});
  const std::filesystem::path& file() const { return file_; }
  std::size_t size() const { return index_.size(); }
  bool has_any_for(std::string_view architecture) const;  // only counts kernels that were compiled from this library's sources
  std::optional<image> find(const std::string& text) const;

 private:
  struct extent {
    std::int64_t offset;
    std::int64_t bytes;
  };
  std::filesystem::path file_;
  std::map<std::string, extent, std::less<>> index_;
};

// Writes a bundle under a temporary name and renames it. Throws ballast::error, also if `file` exists and is not a regular file.
void write_bundle(const std::filesystem::path& file, std::span<const image> images);

class kernel_cache {
 public:
  struct settings {
    std::filesystem::path folder = {};  // the cache on disk; empty: no cache
    std::filesystem::path bundle = {};  // the file of the bundle; empty: no bundle
    // Returns the compiler for code that drivers of this major version run; nvrtc::find, except in tests.
    std::function<const nvrtc::compiler*(int newest_major)> compiler = nvrtc::find;
    std::filesystem::path helper = {};  // the program that compiles in the background (compile_main.cpp); empty: none
  };
  enum class origin : std::uint8_t { memory, bundle, disk, compiler };
  struct found {
    std::shared_ptr<const image> made;
    origin from = origin::memory;
    double seconds = 0;  // processor time of the compiler, if it is from there
  };

  explicit kernel_cache(settings wanted);

  // Returns the code of `wanted` for a device of this compute capability, compiled by a toolkit of at most this major version. Thread-safe;
  // simultaneous requests for the same kernel compile it once. Throws unsupported_error, with the reason, if the kernel is in no cache and
  // there is no compiler; throws ballast::error if it does not compile.
  found get(const kernel_request& wanted, int major, int minor, int newest_toolkit);

  // Loads or compiles all of `wanted`, in parallel on all cores, so that get() returns them immediately. Throws the exception of the first
  // failed get(), after all have been tried.
  void prepare(std::span<const kernel_request> wanted, int major, int minor, int newest_toolkit);

  // The same for one named architecture.
  void prepare(std::span<const kernel_request> wanted, const std::string& architecture);

  // Returns the reason why one of these kernels would have to be compiled; empty if none. With `compile` it starts a process that compiles
  // the missing kernels into the cache on disk; while two such processes run, it leaves that to a later call. If a kernel does not compile,
  // the compiler's log is kept and returned from then on. Also returns empty if such a process cannot be started, if there is no cache, or
  // if a process has ended without a kernel for another reason: then call get(), which waits. Never waits for a compiler, or for a caller
  // that waits for one. Throws std::bad_alloc.
  std::string why_not_ready(std::span<const kernel_request> wanted, int major, int minor, int newest_toolkit, bool compile);

  // The same for one named architecture, for building bundles: does not read the bundle. Throws unsupported_error without NVRTC.
  found get(const kernel_request& wanted, const std::string& architecture);

  // Returns the reason why get() has no kernels for such devices; empty if it can return some.
  std::string why_not(int major, int minor, int newest_toolkit) const;

  const cuda::bundle& bundled() const { return bundle_; }
  const std::filesystem::path& folder() const { return folder_.path(); }
  // Returns "writable", or the reason why the cache cannot be written. A folder that others can write is not read either. Changes nothing.
  std::string folder_state() const;

 private:
  struct pending;
  struct target;
  struct helper;
  static constexpr std::size_t k_most_helpers = 2;
  static void for_each(std::span<const kernel_request> wanted, const std::function<void(const kernel_request&)>& body);
  std::shared_ptr<pending> slot_of(const std::string& text);
  found remembered(const std::string& text, const std::function<found()>& make);
  // Returns the compiler and the architecture for such a device. Throws unsupported_error, with the reason, if there is no suitable
  // compiler.
  target target_for(const kernel_request& wanted, int major, int minor, int newest_toolkit);
  // Reads the kernel from bundle or disk; never compiles.
  std::optional<found> read_for(const kernel_request& wanted, int major, int minor, int newest_toolkit);
  found compile(const kernel_request& wanted, const target& what);
  std::string name_of(const std::string& text, int toolkit) const;
  std::shared_ptr<const image> read(const std::string& text, int toolkit) const;
  void write(const image& compiled);

  void settle();  // records the results of helpers that have ended

  settings settings_;
  private_folder folder_;
  cuda::bundle bundle_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<pending>> images_;
  std::string write_failure_;
  std::mutex behind_;  // protects helpers_ and the background state of images; held for milliseconds; locked before an image's mutex
  std::vector<std::shared_ptr<helper>> helpers_;  // the running ones
};

// Returns the kernel cache of the process, with the folder, bundle and helper of system/installation.hpp.
kernel_cache& kernels();

}  // namespace ballast::cuda
