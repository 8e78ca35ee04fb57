// Finds or compiles the machine code of a kernel, and reads and writes the formats of bundle and cache.
#include "cuda/jit/jit.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <exception>
#include <fstream>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/jit/embedded.hpp"
#include "cuda/jit/machine_code.hpp"
#include "cuda/system/helper_process.hpp"
#include "cuda/system/installation.hpp"

namespace ballast::cuda {

namespace fs = std::filesystem;

namespace {

// Returns the closure of a header; null if it is not embedded.
const embedded_closure* closure_of(std::string_view header) {
  const auto all = embedded_closures();
  const auto at = std::ranges::find(all, header, &embedded_closure::header);
  return at == all.end() ? nullptr : &*at;
}

}  // namespace

std::string_view embedded_hash(std::string_view header) {
  const embedded_closure* const found = closure_of(header);
  return found == nullptr ? "" : found->hash;
}

std::vector<nvrtc::source> embedded_sources(std::string_view header) {
  std::vector<nvrtc::source> made;
  const embedded_closure* const found = closure_of(header);
  for (std::string_view rest = found == nullptr ? "" : found->names; !rest.empty(); rest.remove_prefix(rest.find(' ') + 1))
    made.push_back(*std::ranges::find(embedded_sources(), rest.substr(0, rest.find(' ')), &nvrtc::source::name));
  return made;
}

std::string request_text(const kernel_request& wanted, std::string_view architecture) {
  static const std::string options = core::join(nvrtc::options(), " ");
  return fmt::format("sources {}\noptions {}\nheader {}\narchitecture {}\nkernel {}\n", embedded_hash(wanted.header), options,
                     wanted.header, architecture, wanted.expression);
}

namespace {

// Returns whether to compile with architecture-specific instructions ("a"), because kernels use them: Hopper and data-centre Blackwell.
bool has_own_instructions(int major) { return major == 9 || major == 10; }

// Returns the number in "sm_90a" or "compute_90"; 0 if there is none.
int number_of(std::string_view architecture) {
  int number = 0;
  const auto digits = std::min(architecture.find('_'), architecture.size() - 1) + 1;
  std::from_chars(architecture.data() + digits, architecture.data() + architecture.size(), number);
  return number;
}

}  // namespace

std::vector<std::string> runnable_architectures(int major, int minor) {
  std::vector<std::string> list;
  if (has_own_instructions(major)) list.push_back(fmt::format("sm_{}{}a", major, minor));
  for (int below = minor; below >= 0; --below) list.push_back(fmt::format("sm_{}{}", major, below));
  return list;
}

std::string target_architecture(int major, int minor, std::span<const int> known) {
  for (const std::string& each : runnable_architectures(major, minor)) {
    if (std::ranges::find(known, number_of(each)) != known.end()) return each;
  }
  int newest = 0;
  for (const int each : known) {
    if (each <= 10 * major + minor) newest = std::max(newest, each);
  }
  return newest == 0 ? "" : fmt::format("compute_{}", newest);
}

std::vector<std::string> translatable_architectures(int major, int minor) {
  std::vector<std::string> list;
  for (const int each : {90, 80}) {
    if (each <= 10 * major + minor) list.push_back(fmt::format("compute_{}", each));
  }
  return list;
}

capabilities typical_capabilities(std::string_view architecture) {
  constexpr std::int64_t kib = 1024;
  constexpr std::int64_t gib = kib * kib * kib;
  if (architecture == "sm_80") return {"sm_80", 8, 0, 108, 2048, 65536, 164 * kib, 163 * kib, 40 * kib * kib, 40 * gib};
  if (architecture == "sm_90a") return {"sm_90a", 9, 0, 132, 2048, 65536, 228 * kib, 227 * kib, 50 * kib * kib, 80 * gib};
  if (architecture == "sm_100a") return {"sm_100a", 10, 0, 148, 2048, 65536, 228 * kib, 227 * kib, 126 * kib * kib, 180 * gib};
  if (architecture == "compute_90") return {"compute_90", 12, 0, 170, 1536, 65536, 100 * kib, 99 * kib, 96 * kib * kib, 32 * gib};
  throw invalid_argument_error(fmt::format("architecture: expected sm_80, sm_90a, sm_100a or compute_90, got {}", architecture));
}

std::string over_budget(const image& made, const kernel_request& wanted, const capabilities& on) {
  const nvrtc::resources& uses = made.uses;
  if (uses.registers < 0 || uses.spills < 0 || uses.stack < 0 || uses.static_shared < 0) return "the compiler did not say what it uses";
  const std::int64_t budget = register_budget(wanted, on);
  std::vector<std::string> reasons;
  if (uses.registers > budget) reasons.push_back(fmt::format("{} registers of {}", uses.registers, budget));
  if (uses.spills > wanted.spills) reasons.push_back(fmt::format("{} bytes of spills", uses.spills));
  // Stack beyond the spills and the allowed calls holds arrays that are not in registers.
  if (uses.stack > std::min(uses.spills, wanted.spills) + wanted.stack) reasons.push_back(fmt::format("{} bytes of stack", uses.stack));
  if (const std::int64_t shared = uses.static_shared + wanted.shared; shared > on.shared_per_block)
    reasons.push_back(fmt::format("{} bytes of shared memory of {}", shared, on.shared_per_block));
  if (const least_loads& least = wanted.loads; least != least_loads{}) {
    const auto counts = count_loads(made.code, made.name);
    const auto expect = [&](int load_counts::*kind, int expected, const char* words) {
      if (counts && (*counts).*kind < expected)
        reasons.push_back(fmt::format("{} loads {} of {}: some are merged", (*counts).*kind, words, expected));
    };
    if (!counts) reasons.emplace_back("no machine code to count loads in");
    expect(&load_counts::global, least.global, "from global memory");
    expect(&load_counts::streamed, least.streamed, "evicted from L1 first");
    expect(&load_counts::shared, least.shared, "from shared memory");
  }
  return core::join(reasons, ", ");
}

std::int64_t register_budget(const kernel_request& wanted, const capabilities& on) {
  constexpr std::int64_t most = 255;  // registers per thread
  if (wanted.registers > 0) return wanted.registers;
  return wanted.threads > 0 ? std::min(most, on.registers_per_multiprocessor / wanted.threads) : most;
}

// --- entries ---------------------------------------------------------------------------------------------------------------------------
//
// magic (8 bytes), version (u32), bytes of the body (u64), XXH3-128 of the body (32 hexadecimal digits), body. Numbers are little-endian.
// Body: text, toolkit, name, registers, spills, stack, static shared, code; strings with their length (u64) in front, numbers as i32.

namespace {

constexpr std::string_view k_magic("BALLASTK");
constexpr std::uint32_t k_version = 3;
constexpr std::size_t k_head = 8 + 4 + 8 + k_digest_digits;
constexpr std::uint64_t k_longest_text = 1 << 20;

template <class Number>
void put(std::string& to, Number value) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) to.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
}

void put(std::string& to, const std::string& text) {
  put(to, static_cast<std::uint64_t>(text.size()));
  to += text;
}

// Removes a number from the front of `from`; returns false if `from` is too short.
template <class Number>
bool take(std::string_view& from, Number& value) {
  if (from.size() < sizeof(Number)) return false;
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) bits |= std::uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
  value = static_cast<Number>(bits);
  from.remove_prefix(sizeof(Number));
  return true;
}

bool take(std::string_view& from, std::string& text) {
  std::uint64_t bytes = 0;
  if (!take(from, bytes) || from.size() < bytes) return false;
  text = from.substr(0, bytes);
  from.remove_prefix(bytes);
  return true;
}

// Returns the size of the body in bytes, if `head` is the start of an entry.
std::optional<std::uint64_t> body_bytes(std::string_view head) {
  std::uint32_t version = 0;
  std::uint64_t bytes = 0;
  if (!head.starts_with(k_magic)) return std::nullopt;
  head.remove_prefix(k_magic.size());
  if (!take(head, version) || version != k_version || !take(head, bytes)) return std::nullopt;
  return bytes;
}

}  // namespace

std::string pack(const image& value) {
  std::string body;
  put(body, value.text);
  put(body, std::int32_t{value.toolkit});
  put(body, value.name);
  for (const int each : {value.uses.registers, value.uses.spills, value.uses.stack, value.uses.static_shared})
    put(body, std::int32_t{each});
  put(body, value.code);
  std::string entry(k_magic);
  put(entry, k_version);
  put(entry, static_cast<std::uint64_t>(body.size()));
  const std::string sum = digest(body);
  return entry + sum + body;
}

std::optional<image> unpack(std::string_view bytes) {
  const auto length = body_bytes(bytes);
  if (!length || bytes.size() < k_head || bytes.size() - k_head != *length) return std::nullopt;
  std::string_view body = bytes.substr(k_head);
  if (bytes.substr(k_head - k_digest_digits, k_digest_digits) != digest(body)) return std::nullopt;
  image value;
  std::array<std::int32_t, 4> uses{};
  std::int32_t toolkit = 0;
  if (!take(body, value.text) || !take(body, toolkit) || !take(body, value.name)) return std::nullopt;
  for (std::int32_t& each : uses) {
    if (!take(body, each)) return std::nullopt;
  }
  if (!take(body, value.code) || !body.empty()) return std::nullopt;
  value.toolkit = toolkit;
  value.uses = {uses[0], uses[1], uses[2], uses[3]};
  return value;
}

// --- bundle ----------------------------------------------------------------------------------------------------------------------------

bundle::bundle(fs::path file) : file_(std::move(file)) {
  if (file_.empty()) return;
  std::ifstream in(file_, std::ios::binary | std::ios::ate);
  if (!in) return;
  const std::int64_t total = in.tellg();
  std::string head(k_head + 8, '\0');  // the head of the entry, and the length of its text
  for (std::int64_t offset = 0; offset + static_cast<std::int64_t>(head.size()) <= total;) {
    if (!in.seekg(offset) || !in.read(head.data(), static_cast<std::streamsize>(head.size()))) break;
    const auto length = body_bytes(head);
    const std::int64_t remaining = total - offset - static_cast<std::int64_t>(k_head);
    if (!length || *length > static_cast<std::uint64_t>(remaining)) break;
    std::uint64_t text_bytes = 0;
    std::string_view rest = std::string_view(head).substr(k_head);
    if (!take(rest, text_bytes) || text_bytes > k_longest_text || text_bytes + 8 > *length) break;
    std::string text(text_bytes, '\0');
    if (!in.read(text.data(), static_cast<std::streamsize>(text_bytes))) break;
    const auto bytes = static_cast<std::int64_t>(k_head + *length);
    index_.emplace(std::move(text), extent{offset, bytes});
    offset += bytes;
  }
}

bool bundle::has_any_for(std::string_view architecture) const {
  const std::string line = fmt::format("\narchitecture {}\n", architecture);
  return std::ranges::any_of(embedded_closures(), [&](const embedded_closure& ours) {
    const std::string start = fmt::format("sources {}\n", ours.hash);
    // The keys are sorted, and each begins with the hash of its sources.
    for (auto each = index_.lower_bound(start); each != index_.end() && each->first.starts_with(start); ++each) {
      if (each->first.find(line) != std::string::npos) return true;
    }
    return false;
  });
}

std::optional<image> bundle::find(const std::string& text) const {
  const auto at = index_.find(text);
  if (at == index_.end()) return std::nullopt;
  std::ifstream in(file_, std::ios::binary);
  std::string entry(static_cast<std::size_t>(at->second.bytes), '\0');
  if (!in.seekg(at->second.offset) || !in.read(entry.data(), at->second.bytes)) return std::nullopt;
  auto value = unpack(entry);
  if (!value || value->text != text) return std::nullopt;
  return value;
}

void write_bundle(const fs::path& file, std::span<const image> images) {
  std::string content;
  for (const image& each : images) content += pack(each);
  if (file.has_parent_path()) fs::create_directories(file.parent_path());
  if (const std::string failure = replace_file(file, content); !failure.empty()) throw error(failure);
}

// --- cache -----------------------------------------------------------------------------------------------------------------------------

kernel_cache::kernel_cache(settings wanted) : settings_(std::move(wanted)), folder_(settings_.folder), bundle_(settings_.bundle) {}

// One image, during its compilation and afterwards. The thread that compiles it holds the mutex.
struct kernel_cache::pending {
  std::mutex mutex;
  std::shared_ptr<const image> made;

  // The state of the background compilation. Protected by kernel_cache::behind_.
  enum class stage : std::uint8_t { untouched, running, ended, refused, failed };
  stage behind = stage::untouched;
  std::string refusal;  // the compiler's log, as the helper printed it
};

// One process that compiles the missing kernels of a plan.
struct kernel_cache::helper {
  std::unique_ptr<helper_process> process;
  std::vector<std::shared_ptr<pending>> makes;
};

struct kernel_cache::target {
  const nvrtc::compiler& with;
  std::string architecture;
  int toolkit() const { return 1000 * with.major() + 10 * with.minor(); }
};

namespace {

std::string memory_text(const kernel_request& wanted, int major, int minor, int newest_toolkit) {
  return fmt::format("toolkit {}\n{}", newest_toolkit, request_text(wanted, runnable_architectures(major, minor).front()));
}

}  // namespace

std::shared_ptr<kernel_cache::pending> kernel_cache::slot_of(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  auto& held = images_[text];
  if (held == nullptr) held = std::make_shared<pending>();
  return held;
}

kernel_cache::found kernel_cache::remembered(const std::string& text, const std::function<found()>& make) {
  const std::shared_ptr<pending> slot = slot_of(text);
  const std::scoped_lock lock(slot->mutex);  // other threads that need this image wait here
  if (slot->made != nullptr) return {slot->made, origin::memory};
  found got = make();
  slot->made = got.made;
  return got;
}

kernel_cache::target kernel_cache::target_for(const kernel_request& wanted, int major, int minor, int newest_toolkit) {
  const auto refuse = [&](const std::string& reason) {
    throw unsupported_error(fmt::format("{}: the kernel is not in the bundle ({}) and cannot be compiled: {}", wanted.expression,
                                        bundle_.size() == 0 ? "there is none" : bundle_.file().string(), reason));
  };
  const nvrtc::compiler* with = settings_.compiler(newest_toolkit);
  if (with == nullptr) refuse(nvrtc::why_not_found(newest_toolkit));
  std::string architecture = target_architecture(major, minor, with->architectures());
  if (architecture.empty())
    refuse(fmt::format("NVRTC {}.{} knows no architecture as old as {}.{}", with->major(), with->minor(), major, minor));
  return {*with, std::move(architecture)};
}

std::optional<kernel_cache::found> kernel_cache::read_for(const kernel_request& wanted, int major, int minor, int newest_toolkit) {
  for (const std::string& each : runnable_architectures(major, minor)) {
    auto ready = bundle_.find(request_text(wanted, each));
    if (ready && ready->toolkit / 1000 <= newest_toolkit) return found{std::make_shared<const image>(std::move(*ready)), origin::bundle};
  }
  const nvrtc::compiler* with = settings_.compiler(newest_toolkit);
  const std::string architecture = with == nullptr ? "" : target_architecture(major, minor, with->architectures());
  if (architecture.empty()) {
    // Only without a compiler: the driver takes as long for PTX as a compiler, and its code has no instructions of the architecture's own.
    for (const std::string& each : translatable_architectures(major, minor)) {
      auto ready = bundle_.find(request_text(wanted, each));
      if (ready && ready->toolkit / 1000 <= newest_toolkit) return found{std::make_shared<const image>(std::move(*ready)), origin::bundle};
    }
    return std::nullopt;
  }
  auto kept = read(request_text(wanted, architecture), target{*with, architecture}.toolkit());
  if (kept == nullptr) return std::nullopt;
  return found{std::move(kept), origin::disk};
}

kernel_cache::found kernel_cache::get(const kernel_request& wanted, int major, int minor, int newest_toolkit) {
  return remembered(memory_text(wanted, major, minor, newest_toolkit), [&]() -> found {
    if (auto ready = read_for(wanted, major, minor, newest_toolkit)) return std::move(*ready);
    return compile(wanted, target_for(wanted, major, minor, newest_toolkit));
  });
}

void kernel_cache::settle() {
  std::erase_if(helpers_, [](const std::shared_ptr<helper>& each) {
    const std::optional<std::string>& said = each->process->ended();
    if (!said) return false;
    for (const std::shared_ptr<pending>& slot : each->makes) {
      slot->behind = pending::stage::ended;
      slot->refusal = *said;
    }
    return true;
  });
}

std::string kernel_cache::why_not_ready(std::span<const kernel_request> wanted, int major, int minor, int newest_toolkit, bool compile) {
  using stage = pending::stage;
  const std::scoped_lock lock(behind_);
  settle();
  std::string why;
  bool failed = false;
  auto next = std::make_shared<helper>();
  std::vector<std::string> words;
  try {
    for (const kernel_request& each : wanted) {
      const std::shared_ptr<pending> slot = slot_of(memory_text(each, major, minor, newest_toolkit));
      const std::unique_lock making(slot->mutex, std::try_to_lock);
      if (making.owns_lock()) {
        if (slot->made != nullptr) continue;
        if (slot->behind == stage::refused) return slot->refusal;
        if (slot->behind == stage::untouched || slot->behind == stage::ended) {
          if (auto ready = read_for(each, major, minor, newest_toolkit)) {
            slot->made = std::move(ready->made);
            continue;
          }
        }
        if (slot->behind == stage::ended) {
          slot->behind = slot->refusal.empty() ? stage::failed : stage::refused;
          if (slot->behind == stage::refused) return slot->refusal;
        }
        failed = failed || slot->behind == stage::failed;
        if (slot->behind == stage::untouched) {
          const target what = target_for(each, major, minor, newest_toolkit);
          if (next->makes.empty()) words = {folder_.path().string(), what.with.path(), what.architecture};
          words.insert(words.end(), {each.header, each.expression});
          next->makes.push_back(slot);
        }
      }
      why = "they are being compiled";
    }
  } catch (const unsupported_error& refused) {
    return refused.what();
  }
  if (failed) return "";
  if (next->makes.empty() || !compile || helpers_.size() >= k_most_helpers) return why;
  if (folder_state() == "writable" && !settings_.helper.empty()) next->process = helper_process::start(settings_.helper, words);
  if (next->process == nullptr) return "";
  for (const std::shared_ptr<pending>& slot : next->makes) slot->behind = stage::running;
  helpers_.push_back(std::move(next));
  return why;
}

void kernel_cache::prepare(std::span<const kernel_request> wanted, int major, int minor, int newest_toolkit) {
  for_each(wanted, [&](const kernel_request& each) { (void)get(each, major, minor, newest_toolkit); });
}

void kernel_cache::prepare(std::span<const kernel_request> wanted, const std::string& architecture) {
  for_each(wanted, [&](const kernel_request& each) { (void)get(each, architecture); });
}

void kernel_cache::for_each(std::span<const kernel_request> wanted, const std::function<void(const kernel_request&)>& body) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < wanted.size(); i = next++) {
      try {
        body(wanted[i]);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    const std::size_t threads = std::min<std::size_t>(wanted.size(), std::max(1u, std::thread::hardware_concurrency()));
    try {
      for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
    } catch (const std::system_error&) {  // the process cannot start more threads: use those that it has
    }
    work();
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

kernel_cache::found kernel_cache::get(const kernel_request& wanted, const std::string& architecture) {
  return remembered(request_text(wanted, architecture), [&]() -> found {
    const int any = std::numeric_limits<int>::max();
    const nvrtc::compiler* with = settings_.compiler(any);
    if (with == nullptr) throw unsupported_error(fmt::format("{}: {}", wanted.expression, nvrtc::why_not_found(any)));
    const target what{*with, architecture};
    if (auto kept = read(request_text(wanted, architecture), what.toolkit())) return {std::move(kept), origin::disk};
    return compile(wanted, what);
  });
}

kernel_cache::found kernel_cache::compile(const kernel_request& wanted, const target& what) {
  nvrtc::result compiled = what.with.compile(wanted.header, wanted.expression, what.architecture, embedded_sources(wanted.header));
  auto made = std::make_shared<const image>(
      image{request_text(wanted, what.architecture), what.toolkit(), std::move(compiled.name), std::move(compiled.image), compiled.uses});
  write(*made);
  return {std::move(made), origin::compiler, compiled.seconds};
}

std::string kernel_cache::name_of(const std::string& text, int toolkit) const {
  return digest(fmt::format("toolkit {}\n{}", toolkit, text)) + ".kernel";
}

// Returns null unless the file is exactly the requested entry. A damaged entry, or one that other users could have written, is compiled
// again and replaced.
std::shared_ptr<const image> kernel_cache::read(const std::string& text, int toolkit) const {
  if (folder_.path().empty()) return nullptr;
  const auto content = folder_.read(name_of(text, toolkit));
  if (!content) return nullptr;
  auto value = unpack(*content);
  if (!value || value->text != text || value->toolkit != toolkit) return nullptr;
  return std::make_shared<const image>(std::move(*value));
}

// A failure to write the cache only makes calls slower: the call continues, and `ballast info` shows the reason.
void kernel_cache::write(const image& made) {
  if (folder_.path().empty()) return;
  const std::string why = folder_.write(name_of(made.text, made.toolkit), pack(made));
  const std::scoped_lock lock(mutex_);
  write_failure_ = why;
}

std::string kernel_cache::why_not(int major, int minor, int newest_toolkit) const {
  auto architectures = runnable_architectures(major, minor);
  for (std::string& each : translatable_architectures(major, minor)) architectures.push_back(std::move(each));
  if (std::ranges::any_of(architectures, [&](const std::string& each) { return bundle_.has_any_for(each); })) return "";
  const nvrtc::compiler* with = settings_.compiler(newest_toolkit);
  if (with == nullptr)
    return fmt::format("no kernels for compute capability {}.{}: {}, and {}", major, minor,
                       bundle_.size() == 0 ? "there is no bundle" : fmt::format("{} has none", bundle_.file().string()),
                       nvrtc::why_not_found(newest_toolkit));
  if (target_architecture(major, minor, with->architectures()).empty())
    return fmt::format("no kernels for compute capability {}.{}: NVRTC {}.{} knows only later ones", major, minor, with->major(),
                       with->minor());
  return "";
}

std::string kernel_cache::folder_state() const {
  if (folder_.path().empty()) return "off: none of BALLAST_CACHE_DIR, XDG_CACHE_HOME and HOME is set";
  if (const std::string why = folder_.refusal(); !why.empty()) return "not writable: " + why;
  const std::scoped_lock lock(mutex_);
  return write_failure_.empty() ? "writable" : "not writable: " + write_failure_;
}

kernel_cache& kernels() {
  static kernel_cache own({.folder = default_cache_folder(), .bundle = bundle_file().file, .helper = helper_file().file});
  return own;
}

}  // namespace ballast::cuda
