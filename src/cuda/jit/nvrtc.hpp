// The CUDA run-time compiler, found and bound at run time: from a kernel's name to machine code, without a GPU.
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

// A file that #include "name" (or <name>) finds.
struct source {
  std::string_view name;
  const char* text;
};

// What a kernel takes of the machine, from the assembler's report; −1 where the compiler did not say.
struct resources {
  int registers = -1;      // of a thread
  int spills = -1;         // bytes of spill stores and loads of a thread
  int stack = -1;          // bytes of local memory of a thread, spills included
  int static_shared = -1;  // bytes of a block

  bool operator==(const resources&) const = default;
};

struct result {
  std::string name;   // of the kernel in the image
  std::string image;  // cubin, or PTX if the architecture is "compute_…"
  resources uses;
  std::string log;
};

// The program does not compile: its author, not the machine, must change something. Carries the compiler's log.
class refusal : public error {
 public:
  using error::error;
};

class compiler {
 public:
  // Binds the functions of a library that dlopen gave. Throws unsupported_error if it is not NVRTC, or one without machine code.
  compiler(void* library, std::string path);
  compiler(const compiler&) = delete;
  compiler& operator=(const compiler&) = delete;

  int major() const { return major_; }
  int minor() const { return minor_; }
  const std::string& path() const { return path_; }                         // of the file
  const std::vector<int>& architectures() const { return architectures_; }  // 10 · major + minor, ascending

  // Instantiates `expression`, whose template is in `header`. `architecture`: "sm_90a", or "compute_90" for PTX. Thread-safe.
  // `more`: options beside those of options(). Throws refusal, and ballast::error for everything else.
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

// The options of every compilation, but for the architecture.
std::span<const char* const> options();

// The newest NVRTC with at most this major version: a driver runs no code of a toolkit with a later one. Null if there is none.
// Looked for as library.hpp says, each path once.
const compiler* find(int newest_major);

// Why find() is null: what was tried.
std::string why_not_found(int newest_major);

// What the assembler wrote about its (only) kernel.
resources parse_resources(std::string_view log);

}  // namespace ballast::cuda::nvrtc
