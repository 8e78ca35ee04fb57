// Loads NVRTC and compiles kernels with it.
#include "cuda/jit/nvrtc.hpp"

#include <algorithm>
#include <charconv>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <pthread.h>
#include <time.h>

#include "core/format.hpp"
#include "core/function_ref.hpp"
#include "cuda/system/library.hpp"

namespace ballast::cuda::nvrtc {

compiler::compiler(void* library, std::string path) : path_(std::move(path)) {
  const auto find = [&](auto& target, const char* name) {
    if (!find_function(library, name, target))
      throw unsupported_error(fmt::format("{}: expected NVRTC 12 or later, got a library without {}", path_, name));
  };
  find(functions_.describe, "nvrtcGetErrorString");
  find(functions_.version, "nvrtcVersion");
  find(functions_.architecture_count, "nvrtcGetNumSupportedArchs");
  find(functions_.architectures, "nvrtcGetSupportedArchs");
  find(functions_.create, "nvrtcCreateProgram");
  find(functions_.destroy, "nvrtcDestroyProgram");
  find(functions_.add_name, "nvrtcAddNameExpression");
  find(functions_.compile, "nvrtcCompileProgram");
  find(functions_.lowered_name, "nvrtcGetLoweredName");
  find(functions_.log_size, "nvrtcGetProgramLogSize");
  find(functions_.log, "nvrtcGetProgramLog");
  find(functions_.cubin_size, "nvrtcGetCUBINSize");
  find(functions_.cubin, "nvrtcGetCUBIN");
  find(functions_.ptx_size, "nvrtcGetPTXSize");
  find(functions_.ptx, "nvrtcGetPTX");
  const auto check = [&](status got, const char* call) {
    if (got != 0) throw unsupported_error(fmt::format("{}: {}: {}", path_, call, functions_.describe(got)));
  };
  check(functions_.version(&major_, &minor_), "nvrtcVersion");
  if (major_ < 12) throw unsupported_error(fmt::format("{}: expected NVRTC 12 or later, got {}.{}", path_, major_, minor_));
  int count = 0;
  check(functions_.architecture_count(&count), "nvrtcGetNumSupportedArchs");
  architectures_.resize(static_cast<std::size_t>(count));
  check(functions_.architectures(architectures_.data()), "nvrtcGetSupportedArchs");
  std::ranges::sort(architectures_);
}

namespace {

// Runs `body` on a thread with a large stack. Compilers are recursive: unrolled templates need more stack than a caller's thread has (8 MiB
// or far less). Returns the processor time of that thread in seconds.
double on_large_stack(core::function_ref<void()> body) {
  constexpr std::size_t k_bytes = std::size_t{256} << 20;  // address space only
  pthread_attr_t attributes;
  pthread_t thread;
  struct work {
    core::function_ref<void()> body;
    double seconds;
  };
  work given{body, 0};
  const auto run = [](void* passed) -> void* {
    work& what = *static_cast<work*>(passed);
    what.body();
    timespec used{};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0)
      what.seconds = static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
    return nullptr;
  };
  const bool prepared = pthread_attr_init(&attributes) == 0;
  const bool started =
      prepared && pthread_attr_setstacksize(&attributes, k_bytes) == 0 && pthread_create(&thread, &attributes, run, &given) == 0;
  if (prepared) pthread_attr_destroy(&attributes);
  if (!started) throw error("NVRTC: expected a thread with a stack of 256 MiB, got none");
  pthread_join(thread, nullptr);
  return given.seconds;
}

}  // namespace

// C++20 for template arguments of class type; -v for the assembler's report of resources. No -I, because every header is embedded.
std::span<const char* const> options() {
  static constexpr const char* list[] = {"--std=c++20", "-default-device", "--ptxas-options=-v"};
  return list;
}

result compiler::compile(std::string_view header, const std::string& expression, std::string_view architecture,
                         std::span<const source> sources, std::span<const char* const> more) const {
  const std::string text = fmt::format("#include \"{}\"\n", header);
  std::vector<const char*> texts;
  std::vector<std::string> names;
  std::vector<const char*> name_pointers;
  for (const source& each : sources) {
    texts.push_back(each.text);
    names.emplace_back(each.name);
  }
  for (const std::string& each : names) name_pointers.push_back(each.c_str());

  const auto fail = [&](status got, const char* call, const std::string& log) {
    constexpr status k_does_not_compile = 6;  // NVRTC_ERROR_COMPILATION
    const std::string words = fmt::format("{} for {}: {}: expected success, got {}{}{}", expression, architecture, call,
                                          functions_.describe(got), log.empty() ? "" : "\n", log);
    if (got == k_does_not_compile) throw refusal(words);
    throw error(words);
  };
  program made = nullptr;
  if (const status got =
          functions_.create(&made, text.c_str(), "ballast_kernel.cu", static_cast<int>(texts.size()), texts.data(), name_pointers.data());
      got != 0)
    fail(got, "nvrtcCreateProgram", "");
  struct closer {
    status (*destroy)(program*);
    void operator()(program held) const { destroy(&held); }
  };
  const std::unique_ptr<std::remove_pointer_t<program>, closer> held(made, closer{functions_.destroy});

  if (const status got = functions_.add_name(made, expression.c_str()); got != 0) fail(got, "nvrtcAddNameExpression", "");
  const std::string target = fmt::format("--gpu-architecture={}", architecture);
  std::vector<const char*> list(options().begin(), options().end());
  list.push_back(target.c_str());
  list.insert(list.end(), more.begin(), more.end());
  status compiled = 0;
  result out;
  out.seconds = on_large_stack([&] { compiled = functions_.compile(made, static_cast<int>(list.size()), list.data()); });

  // The sizes of texts include the terminating zero.
  const auto fetch = [&](status (*size_of)(program, std::size_t*), status (*get)(program, char*), const char* call) {
    std::size_t bytes = 0;
    std::string content;
    if (const status got = size_of(made, &bytes); got != 0) fail(got, call, "");
    content.resize(bytes);
    if (const status got = get(made, content.data()); got != 0) fail(got, call, "");
    return content;
  };
  out.log = fetch(functions_.log_size, functions_.log, "nvrtcGetProgramLog");
  while (!out.log.empty() && out.log.back() == '\0') out.log.pop_back();
  if (compiled != 0) fail(compiled, "nvrtcCompileProgram", out.log);
  const char* lowered = nullptr;
  if (const status got = functions_.lowered_name(made, expression.c_str(), &lowered); got != 0) fail(got, "nvrtcGetLoweredName", out.log);
  out.name = lowered;
  out.image = architecture.starts_with("compute_") ? fetch(functions_.ptx_size, functions_.ptx, "nvrtcGetPTX")
                                                   : fetch(functions_.cubin_size, functions_.cubin, "nvrtcGetCUBIN");
  out.uses = parse_resources(out.log);
  return out;
}

resources parse_resources(std::string_view log) {
  // Returns the number before `unit`, at the first occurrence of `unit` that follows a number; `otherwise` if there is none. The
  // assembler's remarks contain the word registers without a number, too.
  const auto before = [&](std::string_view unit, int otherwise) {
    for (auto at = log.find(unit); at != std::string_view::npos; at = log.find(unit, at + 1)) {
      auto first = at;
      while (first > 0 && log[first - 1] >= '0' && log[first - 1] <= '9') --first;
      if (first == at) continue;
      int value = otherwise;
      std::from_chars(log.data() + first, log.data() + at, value);
      return value;
    }
    return otherwise;
  };
  resources found;
  found.registers = before(" registers", -1);
  if (found.registers < 0) return found;  // no report: PTX, or an NVRTC that does not return the assembler's output
  const int stores = before(" bytes spill stores", -1);
  const int loads = before(" bytes spill loads", -1);
  found.spills = stores < 0 || loads < 0 ? -1 : stores + loads;
  found.stack = before(" bytes stack frame", -1);
  found.static_shared = before(" bytes smem", 0);  // not mentioned if the kernel has none
  return found;
}

namespace {

struct attempt {
  std::string path;
  std::unique_ptr<const compiler> opened;
  std::string why;  // the reason if it could not be opened
};

// The candidates that have been tried so far. find() opens them in order until one is suitable; opened libraries stay open.
std::mutex opening;
std::vector<attempt>& attempts() {
  static std::vector<attempt> list;
  return list;
}

}  // namespace

const compiler* find(int newest_major) {
  const std::scoped_lock lock(opening);
  static const std::vector<std::string> paths = library_paths(k_nvrtc_library);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (i == attempts().size()) {
      attempt made{paths[i], nullptr, ""};
      if (const opened_library library = open_library(paths[i]); library.handle == nullptr) {
        made.why = "not found";
      } else {
        try {
          if (std::string file = loaded_file(library.handle); !file.empty()) made.path = std::move(file);
          made.opened = std::make_unique<const compiler>(library.handle, made.path);
        } catch (const unsupported_error& unfit) {
          made.why = unfit.what();
        }
      }
      attempts().push_back(std::move(made));
    }
    const attempt& tried = attempts()[i];
    if (tried.opened != nullptr && tried.opened->major() <= newest_major) return tried.opened.get();
  }
  return nullptr;
}

std::string why_not_found(int newest_major) {
  if (find(newest_major) != nullptr) return "";
  const std::scoped_lock lock(opening);
  std::string unfit;
  for (const attempt& each : attempts()) {
    if (each.opened != nullptr)
      unfit += fmt::format("; {} is {}.{}, and the driver runs code of CUDA {} and earlier", each.path, each.opened->major(),
                           each.opened->minor(), newest_major);
    else if (each.why != "not found")
      unfit += "; " + each.why;
  }
  return not_found(k_nvrtc_library) + unfit;
}

}  // namespace ballast::cuda::nvrtc
