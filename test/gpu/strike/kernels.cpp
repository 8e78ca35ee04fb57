// The struck device is the library's own device over a driver with three replaced functions: those that load modules, look up their
// functions and launch them.
#include "strike/kernels.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/jit/embedded.hpp"
#include "cuda/jit/nvrtc.hpp"
#include "cuda/runtime/runtime.hpp"
#include "cuda/system/library.hpp"

namespace ballast::gpu_check {
namespace fs = std::filesystem;
namespace driver = cuda::driver;

namespace {

constexpr const char* k_code_mark = "struck kernel\n";
constexpr const char* k_sites_mark = "sites of a struck kernel\n";

// Files with random names, removed at the end.
class scratch_folder {
 public:
  scratch_folder() {
    std::string name = (fs::temp_directory_path() / "ballast-strike-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw error("cannot make a temporary folder in " + fs::temp_directory_path().string());
    path_ = name;
  }
  ~scratch_folder() {
    std::error_code ignored;  // removal is best effort
    fs::remove_all(path_, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream made;
  made << in.rdbuf();
  return made.str();
}

std::string assembled(const std::string& ptx, const std::string& architecture) {
  const fs::path program = assembler();
  if (program.empty()) throw error("no ptxas was found: set CUDA_HOME to a toolkit");
  const scratch_folder folder;
  std::ofstream(folder / "kernel.ptx", std::ios::binary) << ptx;
  const std::string command = fmt::format("'{}' -arch={} '{}' -o '{}' > '{}' 2>&1", program.string(), architecture,
                                          (folder / "kernel.ptx").string(), (folder / "kernel.cubin").string(), (folder / "log").string());
  if (std::system(command.c_str()) != 0) throw error("ptxas refused a struck kernel:\n" + content_of(folder / "log"));
  return content_of(folder / "kernel.cubin");
}

std::string joined(const std::vector<std::string>& lines) {
  std::string made;
  for (const std::string& each : lines) made += each + "\n";
  return made;
}

// ---- The replaced functions of the driver ----

struct armed_launch {
  bool set = false, done = false;
  std::size_t launch = 0;
  strike_control order;
  driver::address control = 0;
};

struct interposed {
  const driver::api* real = nullptr;
  driver::api ours{};
  driver::result (*global_address)(driver::address*, std::size_t*, driver::module_handle, const char*) = nullptr;
  std::map<std::string, std::size_t> kernel_of_name;
  struct loaded_function {
    std::size_t kernel = 0;
    driver::address control = 0;
  };
  std::map<driver::function, loaded_function> functions;
  std::vector<launch_seen> seen;
  armed_launch armed;
};
interposed* current = nullptr;

driver::result name_function(driver::function* made, driver::module_handle module, const char* name) {
  const driver::result got = current->real->module_function(made, module, name);
  if (got != driver::k_success) return got;
  interposed::loaded_function one;
  const auto at = current->kernel_of_name.find(name);
  if (at != current->kernel_of_name.end()) one.kernel = at->second;
  std::size_t bytes = 0;
  const driver::result found = current->global_address(&one.control, &bytes, module, k_strike_variable);
  if (found == driver::k_success) current->functions[*made] = one;
  return found;
}

driver::result launch_function(const driver::launch_config* config, driver::function which, void** arguments, void** extra) {
  interposed& all = *current;
  const auto at = all.functions.find(which);
  const std::size_t number = all.seen.size();
  if (at != all.functions.end()) all.seen.push_back({at->second.kernel, config->grid[0], config->block[0]});
  const bool strikes = at != all.functions.end() && all.armed.set && number == all.armed.launch;
  const auto set = [&](const strike_control& to) {
    return all.real->copy(at->second.control, reinterpret_cast<driver::address>(&to), sizeof to, config->stream);
  };
  if (strikes) {
    if (const driver::result got = set(all.armed.order); got != driver::k_success) return got;
  }
  driver::result got = all.real->launch(config, which, arguments, extra);
  if (strikes && got == driver::k_success) {
    // The answer stays where the kernel wrote it; only the order is reset.
    static constexpr std::uint64_t k_nobody = ~std::uint64_t{0};
    all.armed.done = true;
    all.armed.control = at->second.control;
    got = all.real->copy(at->second.control, reinterpret_cast<driver::address>(&k_nobody), sizeof k_nobody, config->stream);
  }
  return got;
}

}  // namespace

fs::path assembler() {
  std::vector<fs::path> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') folders.push_back(fs::path(value) / "bin");
  }
  if (const char* path = std::getenv("PATH"); path != nullptr) {
    std::istringstream list(path);
    for (std::string each; std::getline(list, each, ':');) folders.emplace_back(each);
  }
  folders.emplace_back("/usr/local/cuda/bin");
  for (const fs::path& each : folders) {
    std::error_code ignored;
    if (fs::is_regular_file(each / "ptxas", ignored)) return each / "ptxas";
  }
  return {};
}

struck_kernel make_struck_kernel(const cuda::kernel_request& wanted, const std::string& architecture, bool assemble) {
  const cuda::nvrtc::compiler* with = cuda::nvrtc::find(1000);
  if (with == nullptr) throw unsupported_error(cuda::nvrtc::why_not_found(1000));
  static constexpr const char* k_lines[] = {"-lineinfo"};
  const std::string virtual_architecture = fmt::format("compute_{}", architecture.substr(architecture.find('_') + 1));
  const cuda::nvrtc::result ptx =
      with->compile(wanted.header, wanted.expression, virtual_architecture, cuda::embedded_sources(wanted.header), k_lines);
  struck_ptx struck = with_strikes(ptx.image.c_str());
  if (struck.has_numbers && struck.sites.empty()) throw error("no instruction that makes a number was found");  // the parser missed them
  struck_kernel made;
  made.code.text = cuda::request_text(wanted, architecture);
  made.code.toolkit = 1000 * with->major() + 10 * with->minor();
  made.code.name = ptx.name;
  made.code.code = assemble ? assembled(struck.text, architecture) : struck.text;
  made.sites = std::move(struck.sites);
  return made;
}

std::vector<cuda::image> entries_of(const struck_kernel& made) {
  cuda::image code = made.code, sites = made.code;
  code.text = k_code_mark + made.code.text;
  sites.text = k_sites_mark + made.code.text;
  sites.code = joined(made.sites);
  return {code, sites};
}

std::optional<struck_kernel> find_struck_kernel(const cuda::bundle& in, const cuda::kernel_request& wanted,
                                                const std::string& architecture) {
  const std::string text = cuda::request_text(wanted, architecture);
  auto code = in.find(k_code_mark + text);
  const auto sites = in.find(k_sites_mark + text);
  if (!code || !sites) return std::nullopt;
  struck_kernel made{std::move(*code), {}};
  made.code.text = text;
  std::istringstream lines(sites->code);
  for (std::string each; std::getline(lines, each);) made.sites.push_back(each);
  return made;
}

struck_device::struck_device(std::vector<struck_kernel> kernels) : kernels_(std::move(kernels)) {
  if (current != nullptr) throw error("expected one struck device at a time");
  const driver::availability& there = driver::available();
  if (!there.why.empty()) throw unsupported_error(there.why);
  static interposed state;
  state = {};
  state.real = &there.functions;
  state.ours = there.functions;
  state.ours.module_function = name_function;
  state.ours.launch = launch_function;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library != nullptr) {
    void* found = dlsym(library, "cuModuleGetGlobal_v2");
    state.global_address = reinterpret_cast<decltype(state.global_address)>(found);
  }
  if (state.global_address == nullptr) throw unsupported_error("the driver has no cuModuleGetGlobal_v2");
  for (std::size_t i = 0; i < kernels_.size(); ++i) state.kernel_of_name[kernels_[i].code.name] = i;
  current = &state;

  const auto folder = std::make_shared<scratch_folder>();
  folder_ = folder;
  std::vector<cuda::image> images;
  for (const struck_kernel& each : kernels_) images.push_back(each.code);
  const fs::path file = *folder / "kernels.bundle";
  cuda::write_bundle(file, images);
  cache_ = std::make_unique<cuda::kernel_cache>(cuda::kernel_cache::settings{{}, file, [](int) { return nullptr; }});
  driver::context context = nullptr;
  driver::device_id id = 0;
  driver::check(*state.real, state.real->context_current(&context), "cuCtxGetCurrent");
  driver::check(*state.real, state.real->context_device(&id), "cuCtxGetDevice");
  device_ = cuda::open_device(state.ours, there.version, context, id, *cache_);
}

struck_device::~struck_device() {
  device_.reset();
  current = nullptr;
}

std::vector<launch_seen> struck_device::launches() const { return current->seen; }

void struck_device::arm(std::size_t launch, const strike_control& order) {
  current->seen.clear();
  current->armed = {true, false, launch, order, 0};
}

void struck_device::disarm() {
  current->seen.clear();
  current->armed = {};
}

std::optional<strike_control> struck_device::answer() const {
  if (!current->armed.done) return std::nullopt;
  strike_control got;
  driver::check(*current->real, current->real->copy(reinterpret_cast<driver::address>(&got), current->armed.control, sizeof got, nullptr),
                "cuMemcpyAsync");
  driver::check(*current->real, current->real->stream_synchronize(nullptr), "cuStreamSynchronize");
  return got;
}

}  // namespace ballast::gpu_check
