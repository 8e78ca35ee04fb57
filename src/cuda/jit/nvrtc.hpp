// The CUDA run-time compiler, loaded and bound at run time: compiles a named kernel to machine code, without a GPU.
// Layer: foundation.
// Source: the interface of libnvrtc 12 and 13.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.hpp>

namespace ballast::cuda::nvrtc {

// A source that #include "name" (or <name>) finds.
struct source {
  std::string_view name;
  const char* text;
};

// The resources of a kernel, from the assembler's report; −1: not reported.
struct resources {
  int registers = -1;      // per thread
  int spills = -1;         // bytes of spill stores and loads per thread
  int stack = -1;          // bytes of local memory per thread, including spills
  int static_shared = -1;  // bytes per block

  bool operator==(const resources&) const = default;
};

struct result {
  std::string name;   // the name of the kernel in the image
  std::string image;  // cubin, or PTX if the architecture is "compute_…"
  resources uses;
  std::string log;
  double seconds = 0;  // processor time of the thread that compiled
};

// Thrown if a kernel does not compile: the source is wrong, not the machine. Contains the compiler's log.
class refusal : public error {
 public:
  using error::error;
};

class compiler {
 public:
  // Binds the functions of a library handle of dlopen. Throws unsupported_error if it is not NVRTC, or an NVRTC that cannot generate
  // machine code.
  compiler(void* library, std::string path);
  compiler(const compiler&) = delete;
  compiler& operator=(const compiler&) = delete;

  int major() const { return major_; }
  int minor() const { return minor_; }
  const std::string& path() const { return path_; }                         // the file of the library
  const std::vector<int>& architectures() const { return architectures_; }  // 10 · major + minor, ascending

  // Instantiates `expression`, whose template is in `header`, and compiles it. `architecture`: "sm_90a", or "compute_90" for PTX. `more`:
  // options in addition to options(). Throws refusal if it does not compile, and ballast::error for other failures. Thread-safe.
  result compile(std::string_view header, const std::string& expression, std::string_view architecture, std::span<const source> sources,
                 std::span<const char* const> more = {}) const;

 private:
  using status = int;                   // nvrtcResult; 0: success
  using program = struct program_tag*;  // nvrtcProgram
  struct api {
    const char* (*describe)(status);
    status (*version)(int* major, int* minor);
    status (*architecture_count)(int* count);
    status (*architectures)(int* list);
    status (*create)(program*, const char* text, const char* name, int headers, const char* const* texts, const char* const* names);
    status (*destroy)(program*);
    status (*add_name)(program, const char* expression);
    status (*compile)(program, int options, const char* const* list);
    status (*lowered_name)(program, const char* expression, const char** name);
    status (*log_size)(program, std::size_t* bytes);
    status (*log)(program, char* text);
    status (*cubin_size)(program, std::size_t* bytes);
    status (*cubin)(program, char* image);
    status (*ptx_size)(program, std::size_t* bytes);
    status (*ptx)(program, char* image);
  };

  api functions_{};
  int major_ = 0;
  int minor_ = 0;
  std::string path_;
  std::vector<int> architectures_;
};

// Returns the options of every compilation, except the architecture.
std::span<const char* const> options();

// Returns the newest NVRTC with at most this major version, because a driver does not run code of a toolkit with a later major version.
// Null if there is none. Searches the places of system/library.hpp, and opens each path once.
const compiler* find(int newest_major);

// Returns the reason why find() returns null: the paths that were tried.
std::string why_not_found(int newest_major);

// Parses the assembler's report of its only kernel.
resources parse_resources(std::string_view log);

}  // namespace ballast::cuda::nvrtc
