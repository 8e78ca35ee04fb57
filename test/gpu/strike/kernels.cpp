// The struck device is the library's own device over a driver with two replaced functions: that which finds a function in a module, and
// the launch.
#include "strike/kernels.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/jit/embedded.hpp"
#include "cuda/jit/nvrtc.hpp"
#include "cuda/runtime/runtime.hpp"
#include "cuda/system/library.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check {
namespace fs = std::filesystem;
namespace driver = cuda::driver;

scratch_folder::scratch_folder() {
  std::string name = (fs::temp_directory_path() / "ballast-strike-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw error("cannot make a temporary folder in " + fs::temp_directory_path().string());
  path_ = name;
}
scratch_folder::~scratch_folder() {
  std::error_code ignored;  // removal is best effort
  fs::remove_all(path_, ignored);
}

namespace {

constexpr const char* k_code_mark = "struck kernel\n";
constexpr const char* k_sites_mark = "sites of a struck kernel\n";

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
  // A kernel without the variable is one of the library's own.
  if (current->global_address(&one.control, &bytes, module, k_strike_variable) == driver::k_success) current->functions[*made] = one;
  return got;
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
    static constexpr strike_control k_nobody;
    all.armed.done = true;
    all.armed.control = at->second.control;
    got = all.real->copy(at->second.control, reinterpret_cast<driver::address>(&k_nobody), offsetof(strike_control, executed),
                         config->stream);
  }
  return got;
}

// The library's device over the driver with replaced functions; kernels that cannot be struck come from its own cache.
class partly_struck_device final : public test::forwarding_device {
 public:
  partly_struck_device(std::shared_ptr<cuda::device> struck, std::shared_ptr<cuda::device> own, std::set<std::string> known,
                       std::string architecture)
      : forwarding_device(std::move(struck)), own_(std::move(own)), known_(std::move(known)), architecture_(std::move(architecture)) {}

  const cuda::kernel& load(const cuda::kernel_request& wanted) override {
    if (is_known(wanted)) return inner_->load(wanted);
    {
      const std::lock_guard lock(mutex_);
      if (std::ranges::find(others, wanted.expression) == others.end()) others.push_back(wanted.expression);
    }
    return own_->load(wanted);
  }
  std::string why_not_ready(std::span<const cuda::kernel_request> wanted, bool compile) override {
    std::vector<cuda::kernel_request> struck, rest;
    for (const cuda::kernel_request& each : wanted) (is_known(each) ? struck : rest).push_back(each);
    const std::string why = inner_->why_not_ready(struck, compile);
    return why.empty() ? own_->why_not_ready(rest, compile) : why;
  }
  void copy_columns(void* to, std::int64_t to_pitch, const void* from, std::int64_t from_pitch, std::int64_t bytes, std::int64_t columns,
                    cuda::stream on) override {
    inner_->copy_columns(to, to_pitch, from, from_pitch, bytes, columns, on);
  }

  std::vector<std::string> others;

 private:
  bool is_known(const cuda::kernel_request& wanted) const { return known_.contains(cuda::request_text(wanted, architecture_)); }
  std::shared_ptr<cuda::device> own_;
  std::set<std::string> known_;  // texts of the requests that can be struck
  std::string architecture_;
  std::mutex mutex_;
};

}  // namespace

std::string short_name(const struck_kernel& of) {
  const std::string& text = of.code.text;
  const auto end = text.find("_kernel<");
  std::string whole = end == std::string::npos ? of.code.name : text.substr(0, end + 7);
  const auto first = whole.find_last_of(": \n");
  return first == std::string::npos ? whole : whole.substr(first + 1);
}

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
  if (struck.has_numbers && struck.sites.empty()) throw error("no instruction that makes data was found");  // the parser missed them
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
  const auto struck = cuda::open_device(state.ours, there.version, context, id, *cache_);
  const cuda::capabilities about = struck->about();
  std::set<std::string> known;
  for (const struck_kernel& each : kernels_) known.insert(each.code.text);
  device_ = std::make_shared<partly_struck_device>(struck, cuda::open_device(state.ours, there.version, context, id, cuda::kernels()),
                                                   std::move(known), cuda::runnable_architectures(about.major, about.minor).front());
}

struck_device::~struck_device() {
  device_.reset();
  current = nullptr;
}

std::vector<std::string> struck_device::others() const { return static_cast<const partly_struck_device&>(*device_).others; }

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
  got.key = current->armed.order.key;  // the order has been reset
  return got;
}

}  // namespace ballast::gpu_check
