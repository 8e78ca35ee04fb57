// From a kernel_request to machine code: looked for in memory, in the bundle that was made with the library and in the cache on disk, and
// else compiled. Needs no GPU and no driver. Layer: foundation; docs/design/cuda.md has the reasons.
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

// A kernel that is compiled.
struct image {
  std::string text = {};  // what it was made of: request_text, …
  int toolkit = 0;        // … and by what: 1000 · major + 10 · minor
  std::string name = {};  // of the kernel in `code`
  std::string code = {};  // cubin or PTX
  nvrtc::resources uses = {};

  bool operator==(const image&) const = default;
};

// Everything but the toolkit that decides about the code: the sources that the header includes, options, header, expression, architecture.
// The same text means the same code, so it is compared whole wherever an image is looked for.
std::string request_text(const kernel_request& wanted, std::string_view architecture);

// The architectures whose machine code a device of this compute capability runs, the best first: its own with the instructions that later
// ones do not have ("sm_90a", "sm_100a"), its own, earlier ones of the same major version.
std::vector<std::string> runnable_architectures(int major, int minor);

// The one to compile for: the first of those that NVRTC knows, else the newest PTX ("compute_…") that is not newer than the device.
// Empty if it knows only newer ones.
std::string target_architecture(int major, int minor, std::span<const int> known);

// What a bundle assumes of the devices of "sm_80" (A100) or "sm_90a" (H100 and H200): the figures that policies may depend on.
// Throws invalid_argument_error for others.
capabilities typical_capabilities(std::string_view architecture);

// Registers of a thread that the request allows: its own budget, or what the launch bound leaves.
std::int64_t register_budget(const kernel_request& wanted, const capabilities& on);

// Why an image does not keep within that budget and that of spills, has an array in memory that should be in registers,
// or wants more shared memory than a block has; empty if it keeps within all of them. What the compiler did not say is over any budget.
std::string over_budget(const image& made, const kernel_request& wanted, const capabilities& on);

// An image as the bundle and the cache store it, with a digest of its body.
std::string pack(const image& value);
// Nothing if `bytes` is not exactly one whole, undamaged entry.
std::optional<image> unpack(std::string_view bytes);

// A file of packed images, one after the other.
class bundle {
 public:
  // Reads the index: what a damaged or truncated file has after the damage is not in it. No file, or no path, is an empty bundle.
  explicit bundle(std::filesystem::path file = {});
  const std::filesystem::path& file() const { return file_; }
  std::size_t size() const { return index_.size(); }
  bool has_any_for(std::string_view architecture) const;  // made of this library's sources
  std::optional<image> find(const std::string& text) const;

 private:
  struct place {
    std::int64_t offset;
    std::int64_t bytes;
  };
  std::filesystem::path file_;
  std::map<std::string, place, std::less<>> index_;
};

// Writes it under a temporary name and renames it. Throws ballast::error, also if something else than a file is there.
void write_bundle(const std::filesystem::path& file, std::span<const image> images);

class kernel_cache {
 public:
  struct settings {
    std::filesystem::path folder = {};  // of the cache on disk; empty: none
    std::filesystem::path bundle = {};  // empty: none
    // The compiler for code that drivers of this major version run; nvrtc::find but in tests.
    std::function<const nvrtc::compiler*(int newest_major)> compiler = nvrtc::find;
    std::filesystem::path helper = {};  // the program that compiles behind callers (compile_main.cpp); empty: none
  };
  enum class origin : std::uint8_t { memory, bundle, disk, compiler };
  struct found {
    std::shared_ptr<const image> made;
    origin from = origin::memory;
  };

  explicit kernel_cache(settings wanted);

  // The code of `wanted` for a device of this compute capability, by a toolkit of at most this major version. Thread-safe; requests for the
  // same kernel at the same time compile it once. Throws unsupported_error with the reason if it cannot be had; a compiler's refusal is
  // ballast::error.
  found get(const kernel_request& wanted, int major, int minor, int newest_toolkit);

  // Makes get() for all of `wanted` immediate: what must be compiled is, side by side on all cores. Throws what get() throws, after all
  // have been tried.
  void prepare(std::span<const kernel_request> wanted, int major, int minor, int newest_toolkit);

  // The same for one named architecture.
  void prepare(std::span<const kernel_request> wanted, const std::string& architecture);

  // Why one of these is not there without a compiler; empty if all are. With `compile` a process of its own begins to compile what is
  // missing, into the cache on disk; while two such processes run, that is left to a later call. A refusal in the compiler's words is kept
  // and returned from then on. Empty, too, if there can be no such process, or no cache, or if one has ended without a kernel for any other
  // reason: then there is nothing better than get(), which waits. Waits for no compiler, and for no caller that does. Throws
  // std::bad_alloc.
  std::string why_not_ready(std::span<const kernel_request> wanted, int major, int minor, int newest_toolkit, bool compile);

  // For one named architecture, as bundles are made: not from the bundle. Throws unsupported_error without NVRTC.
  found get(const kernel_request& wanted, const std::string& architecture);

  // Why get() can give nothing for such devices; empty if it can.
  std::string why_not(int major, int minor, int newest_toolkit) const;

  const cuda::bundle& bundled() const { return bundle_; }
  const std::filesystem::path& folder() const { return folder_.path(); }
  // "writable", or why entries cannot be kept there: a folder that others can write is not read either. Writes nothing.
  std::string folder_state() const;

 private:
  struct pending;
  struct target;
  struct helper;
  static constexpr std::size_t k_most_helpers = 2;
  static void for_each(std::span<const kernel_request> wanted, const std::function<void(const kernel_request&)>& body);
  std::shared_ptr<pending> slot_of(const std::string& text);
  std::shared_ptr<const image> remembered(const std::string& text, const std::function<found()>& make, origin& from);
  // Which compiler makes code of what architecture for such a device. Throws unsupported_error with the reason if none does.
  target target_for(const kernel_request& wanted, int major, int minor, int newest_toolkit);
  // From the bundle or the disk, without a compiler.
  std::optional<found> read_for(const kernel_request& wanted, int major, int minor, int newest_toolkit);
  found compile(const kernel_request& wanted, const target& what);
  std::string name_of(const std::string& text, int toolkit) const;
  std::shared_ptr<const image> read(const std::string& text, int toolkit) const;
  void write(const image& made);

  void settle();  // what ended helpers have left

  settings settings_;
  private_folder folder_;
  cuda::bundle bundle_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<pending>> images_;
  std::string write_failure_;
  std::mutex behind_;  // of helpers_ and of what images say about them; held for milliseconds, and before the mutex of an image
  std::vector<std::shared_ptr<helper>> helpers_;  // that run
};

// The process's own, with the folder, bundle and helper of installation.hpp.
kernel_cache& kernels();

}  // namespace ballast::cuda
