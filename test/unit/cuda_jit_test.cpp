// The run-time compiler, the formats of bundle and cache, and the cache's behaviour among threads, processes and damage.
#include "cuda/jit/jit.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "cuda/jit/embedded.hpp"
#include "unit/cuda_jit_fixture.hpp"

namespace ballast::cuda {
namespace {

using origin = kernel_cache::origin;
using testing::HasSubstr;

image sample(const std::string& text, std::size_t bytes = 1000) {
  image made{text, 13000, "_Z1kv", {}, {32, 0, 8, 1024}};
  for (std::size_t i = 0; i < bytes; ++i) made.code.push_back(static_cast<char>(i * 7));
  return made;
}

// --- names -----------------------------------------------------------------------------------------------------------------------------

TEST(cuda_architecture, is_the_devices_own_where_the_compiler_knows_it) {
  const std::vector<int> known{75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
  EXPECT_EQ(target_architecture(9, 0, known), "sm_90a");
  EXPECT_EQ(target_architecture(10, 0, known), "sm_100a");
  EXPECT_EQ(target_architecture(10, 3, known), "sm_103a");
  EXPECT_EQ(target_architecture(8, 0, known), "sm_80");
  EXPECT_EQ(target_architecture(8, 9, known), "sm_89");
  EXPECT_EQ(target_architecture(12, 0, known), "sm_120");
  // A later one of the same major version runs earlier code; of another major version, only PTX.
  EXPECT_EQ(target_architecture(12, 9, known), "sm_121");
  EXPECT_EQ(target_architecture(13, 0, known), "compute_121");
  EXPECT_EQ(target_architecture(9, 0, std::vector{75, 80}), "compute_80");
  EXPECT_EQ(target_architecture(7, 0, known), "");
  EXPECT_EQ(runnable_architectures(8, 2), (std::vector<std::string>{"sm_82", "sm_81", "sm_80"}));
  EXPECT_EQ(runnable_architectures(9, 0), (std::vector<std::string>{"sm_90a", "sm_90"}));
}

TEST(cuda_architecture, of_bundles_is_known) {
  EXPECT_EQ(typical_capabilities("sm_80").shared_per_block, 163 * 1024);
  EXPECT_EQ(typical_capabilities("sm_90a").major, 9);
  EXPECT_THROW(typical_capabilities("sm_75"), invalid_argument_error);
  EXPECT_EQ(typical_capabilities("compute_90").shared_per_block, 99 * 1024);
  EXPECT_EQ(translatable_architectures(12, 0), (std::vector<std::string>{"compute_90", "compute_80"}));
  EXPECT_EQ(translatable_architectures(8, 7), (std::vector<std::string>{"compute_80"}));
  EXPECT_TRUE(translatable_architectures(7, 5).empty());
}

TEST(cuda_request, text_changes_with_everything_that_decides_about_the_code) {
  std::set<std::string> texts;
  for (const kernel_request& each : {k_probe, k_doubled, kernel_request{"fft/cuda/kernel/line.cuh", k_probe.expression, 256, 0, 1, 0}}) {
    for (const char* architecture : {"sm_80", "sm_90a"}) texts.insert(request_text(each, architecture));
  }
  EXPECT_EQ(texts.size(), 6u);
  EXPECT_THAT(request_text(k_probe, "sm_80"), HasSubstr(std::string(embedded_hash("cuda/device/probe.cuh"))));
  kernel_request budget = k_probe;
  budget.registers = 40;
  budget.shared = 4096;
  EXPECT_EQ(request_text(budget, "sm_80"), request_text(k_probe, "sm_80"));
}

TEST(cuda_sources, of_a_kernel_are_what_its_header_includes) {
  EXPECT_EQ(embedded_hash("cuda/device/probe.cuh").size(), 64u);
  EXPECT_NE(embedded_hash("cuda/device/probe.cuh"), embedded_hash("fft/cuda/kernel/line.cuh"));
  EXPECT_EQ(embedded_hash("no/such.cuh"), "");
  EXPECT_TRUE(embedded_sources("no/such.cuh").empty());
  std::set<std::string_view> names;
  for (const nvrtc::source& each : embedded_sources("cuda/device/probe.cuh")) names.insert(each.name);
  EXPECT_TRUE(names.contains("cuda/device/probe.cuh"));
  EXPECT_TRUE(names.contains("cuda/arch/shared.cuh"));
  EXPECT_TRUE(names.contains("cstdint"));
  for (const std::string_view name : names) EXPECT_FALSE(name.starts_with("fft/")) << name;
  for (const embedded_closure& each : embedded_closures()) EXPECT_FALSE(embedded_sources(each.header).empty()) << each.header;
}

#ifdef BALLAST_EMBED_SCRIPT
// An edit changes the keys of the kernels that see it, and of no others.
TEST_F(cuda_jit, keys_follow_what_a_header_includes) {
  fs::create_directories(folder / "src" / "part");
  fs::create_directories(folder / "std");
  const auto write = [&](const char* name, const std::string& text) { write_all(folder / name, text); };
  // The hashes of a.cuh and b.cuh, as the build writes them.
  const auto hashes = [&] {
    const std::string command = std::string(BALLAST_CMAKE) + " -DROOT=" + (folder / "src").string() +
                                " '-DHEADERS=a.cuh|b.cuh' -DSHIMS=" + (folder / "std").string() +
                                " -DOUTPUT=" + (folder / "made.cpp").string() + " -P " + BALLAST_EMBED_SCRIPT;
    EXPECT_EQ(std::system(command.c_str()), 0);
    const std::string made = read_all(folder / "made.cpp");
    std::vector<std::string> found;
    for (const std::string header : {"{\"a.cuh\", \"", "{\"b.cuh\", \""}) {
      const auto at = made.find(header);
      found.push_back(at == std::string::npos ? "" : made.substr(at + header.size(), 64));
    }
    return found;
  };
  write("src/a.cuh", "#include \"part/own.hpp\"\n#include \"shared.hpp\"\n");
  write("src/b.cuh", "  #  include \"shared.hpp\"\n#include \"not/here.hpp\"\n");
  write("src/part/own.hpp", "#include \"part/deep.hpp\"\n");
  write("src/part/deep.hpp", "int deep;\n");
  write("src/shared.hpp", "#include <cmath>\n#include \"shared.hpp\"\n");
  write("std/cmath", "\n");
  const auto before = hashes();
  EXPECT_EQ(before[0].size(), 64u);
  EXPECT_NE(before[0], before[1]);
  EXPECT_EQ(hashes(), before);
  write("src/part/deep.hpp", "long deep;\n");
  const auto own = hashes();
  EXPECT_NE(own[0], before[0]);
  EXPECT_EQ(own[1], before[1]);
  write("src/shared.hpp", "int shared;\n");
  const auto shared = hashes();
  EXPECT_NE(shared[0], own[0]);
  EXPECT_NE(shared[1], own[1]);
  write("std/cmath", "int cmath;\n");
  const auto standard = hashes();
  EXPECT_NE(standard[0], shared[0]);
  EXPECT_NE(standard[1], shared[1]);
}
#endif

// --- entries ---------------------------------------------------------------------------------------------------------------------------

TEST(cuda_entry, comes_back_as_it_was) {
  const image made = sample("kernel a\n");
  EXPECT_EQ(unpack(pack(made)), made);
  const image empty;
  EXPECT_EQ(unpack(pack(empty)), empty);
}

TEST(cuda_entry, is_refused_when_any_bit_differs_or_any_byte_lacks) {
  const std::string entry = pack(sample("kernel a\n", 50));
  for (std::size_t i = 0; i < entry.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string struck = entry;
      struck[i] = static_cast<char>(struck[i] ^ (1 << bit));
      EXPECT_FALSE(unpack(struck)) << "byte " << i << ", bit " << bit;
    }
    EXPECT_FALSE(unpack(std::string_view(entry).substr(0, i)));
  }
  EXPECT_FALSE(unpack(entry + '\0'));
}

TEST(cuda_resources, are_what_the_assembler_wrote) {
  const auto seen = nvrtc::parse_resources(
      "ptxas info    : (C7519) warpgroup.arrive is injected in around line 5 by compiler to allow use of registers in GMMA in function "
      "'k'\n"
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas         .     160 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
      "ptxas info    : Used 72 registers, used 1 barriers, 160 bytes cumulative stack size, 2048 bytes smem\n");
  EXPECT_EQ(seen, (nvrtc::resources{.registers = 72, .spills = 28, .stack = 160, .static_shared = 2048}));
  EXPECT_EQ(nvrtc::parse_resources(""), nvrtc::resources{});
}

TEST(cuda_resources, are_held_against_the_budget) {
  const capabilities on = typical_capabilities("sm_90a");
  const auto verdict = [&](nvrtc::resources uses, const kernel_request& wanted) { return over_budget({.uses = uses}, wanted, on); };
  const kernel_request free{.threads = 256};
  EXPECT_EQ(register_budget(free, on), 255);
  EXPECT_EQ(register_budget({.threads = 1024}, on), 64);
  EXPECT_EQ(register_budget({.threads = 256, .registers = 40}, on), 40);
  EXPECT_EQ(verdict({255, 0, 0, 0}, free), "");
  EXPECT_EQ(verdict({65, 0, 0, 0}, {.threads = 1024}), "65 registers of 64");
  EXPECT_EQ(verdict({41, 4, 8, 0}, {.threads = 256, .registers = 40}), "41 registers of 40, 4 bytes of spills, 8 bytes of stack");
  EXPECT_EQ(verdict({32, 24, 16, 0}, {.threads = 256, .spills = 24}), "");
  EXPECT_EQ(verdict({32, 25, 16, 0}, {.threads = 256, .spills = 24}), "25 bytes of spills");
  EXPECT_EQ(verdict({32, 24, 32, 0}, {.threads = 256, .spills = 24}), "32 bytes of stack");
  EXPECT_EQ(verdict({32, 0, 0, 1024}, {.threads = 256, .shared = 226 * 1024}), "");
  EXPECT_EQ(verdict({32, 0, 0, 1025}, {.threads = 256, .shared = 226 * 1024}), "232449 bytes of shared memory of 232448");
  EXPECT_NE(verdict({}, free), "");
}

// --- bundle ----------------------------------------------------------------------------------------------------------------------------

TEST_F(cuda_jit, bundle_gives_what_was_put_in_up_to_the_damage) {
  const std::vector<image> images{sample("a"), sample("b", 10), sample("c")};
  const fs::path file = folder / "deep" / "kernels.bundle";
  write_bundle(file, images);
  const bundle whole(file);
  EXPECT_EQ(whole.size(), 3u);
  for (const image& each : images) EXPECT_EQ(whole.find(each.text), each);
  EXPECT_FALSE(whole.find("d"));

  const std::string content = read_all(file);
  write_all(file, content.substr(0, content.size() - 1));
  EXPECT_FALSE(whole.find("c"));  // damaged after the index was read
  const bundle shorter(file);
  EXPECT_EQ(shorter.size(), 2u);
  EXPECT_EQ(shorter.find("b"), images[1]);

  std::string struck = content;
  struck[pack(images[0]).size() - 1] ^= 1;  // in the code of the first
  write_all(file, struck);
  const bundle damaged(file);
  EXPECT_FALSE(damaged.find("a"));
  EXPECT_EQ(damaged.find("b"), images[1]);

  EXPECT_EQ(bundle(folder / "none").size(), 0u);
  EXPECT_EQ(bundle().size(), 0u);
  write_all(file, "no bundle at all, but some text that is longer than the head of an entry");
  EXPECT_EQ(bundle(file).size(), 0u);
}

TEST_F(cuda_jit, bundle_serves_devices_of_its_architectures_without_a_compiler) {
  const fs::path file = folder / "kernels.bundle";
  write_bundle(file, std::vector{sample(request_text(k_probe, "sm_80")), sample(request_text(k_probe, "sm_90a"))});
  kernel_cache cache({.folder = {}, .bundle = file, .compiler = [](int) -> const nvrtc::compiler* { return nullptr; }});
  EXPECT_EQ(cache.why_not(9, 0, 13), "");
  EXPECT_EQ(cache.why_not(8, 6, 13), "");
  EXPECT_THAT(cache.why_not(7, 5, 13), HasSubstr("7.5"));
  const auto hopper = cache.get(k_probe, 9, 0, 13);
  EXPECT_EQ(hopper.from, origin::bundle);
  EXPECT_THAT(hopper.made->text, HasSubstr("sm_90a"));
  EXPECT_EQ(cache.get(k_probe, 9, 0, 13).from, origin::memory);
  EXPECT_THAT(cache.get(k_probe, 8, 6, 13).made->text, HasSubstr("architecture sm_80\n"));
  // A driver of CUDA 12 runs no code of CUDA 13.
  EXPECT_THROW(cache.get(k_probe, 9, 0, 12), unsupported_error);
  try {
    cache.get(k_doubled, 9, 0, 13);
    FAIL() << "no exception";
  } catch (const unsupported_error& seen) {
    EXPECT_THAT(seen.what(), HasSubstr("kernels.bundle"));
    EXPECT_THAT(seen.what(), HasSubstr(k_doubled.expression));
  }
}

// --- compiler --------------------------------------------------------------------------------------------------------------------------

TEST(cuda_nvrtc, is_found_or_says_where_it_was_sought) {
  const nvrtc::compiler* found = nvrtc::find(k_any);
  EXPECT_EQ(found == nullptr, !nvrtc::why_not_found(k_any).empty());
  EXPECT_EQ(nvrtc::find(11), nullptr);
  EXPECT_THAT(nvrtc::why_not_found(11), HasSubstr("NVRTC was not found"));
  if (found == nullptr) return;
  EXPECT_GE(found->major(), 12);
  EXPECT_THAT(nvrtc::why_not_found(11), HasSubstr(found->path()));
}

TEST(cuda_nvrtc, compiles_policies_for_every_architecture_of_the_bundle) {
  BALLAST_NEED_NVRTC();
  const nvrtc::compiler& with = *nvrtc::find(k_any);
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    std::set<std::string> names;
    for (const kernel_request& each : {k_probe, k_doubled}) {
      const nvrtc::result got = with.compile(each.header, each.expression, architecture, embedded_sources());
      EXPECT_EQ(got.image.substr(1, 3), "ELF");
      EXPECT_THAT(got.image, HasSubstr(got.name));
      EXPECT_GT(got.uses.registers, 0) << got.log;
      EXPECT_EQ(got.uses.spills, 0) << got.log;
      EXPECT_EQ(got.uses.stack, 0) << got.log;
      EXPECT_EQ(got.uses.static_shared, each.threads * 8) << got.log;
      names.insert(got.name);
    }
    EXPECT_EQ(names.size(), 2u);
  }
}

TEST(cuda_nvrtc, compiles_kernels_that_are_no_templates_and_ptx) {
  BALLAST_NEED_NVRTC();
  const nvrtc::source plain[] = {{"plain.cuh", "namespace n { __global__ void kernel(int* p) { *p = 1; } }\n"}};
  const nvrtc::compiler& with = *nvrtc::find(k_any);
  EXPECT_EQ(with.compile("plain.cuh", "n::kernel", "sm_90a", plain).image.substr(1, 3), "ELF");
  const nvrtc::result ptx = with.compile("plain.cuh", "n::kernel", "compute_80", plain);
  EXPECT_THAT(ptx.image, HasSubstr(".target sm_80"));
  EXPECT_THAT(ptx.image, HasSubstr(ptx.name));
}

TEST(cuda_nvrtc, every_header_of_kernels_compiles_alone) {
  BALLAST_NEED_NVRTC();
  for (const nvrtc::source& each : embedded_sources()) {
    if (!each.name.ends_with(".cuh")) continue;
    std::vector<nvrtc::source> sources(embedded_sources().begin(), embedded_sources().end());
    const std::string text = "#include \"" + std::string(each.name) + "\"\n__global__ void alone() {}\n";
    sources.push_back({"alone.cuh", text.c_str()});
    for (const char* architecture : {"sm_80", "sm_90a"})
      EXPECT_NO_THROW((void)nvrtc::find(k_any)->compile("alone.cuh", "alone", architecture, sources)) << each.name;
  }
}

TEST(cuda_nvrtc, standard_headers_have_what_kernels_use) {
  BALLAST_NEED_NVRTC();
  std::vector<nvrtc::source> sources(embedded_sources().begin(), embedded_sources().end());
  sources.push_back({"all.cuh", R"(
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>
static_assert(std::numbers::pi > 3.14159265358979);
static_assert(sizeof(std::int64_t) == 8 && sizeof(uint32_t) == 4 && std::is_same_v<std::size_t, decltype(sizeof 1)>);
static_assert(std::is_same_v<std::conditional_t<true, float, double>, float>);
static_assert(std::is_same_v<std::remove_cvref_t<const int&>, int>);
static_assert(std::numeric_limits<float>::infinity() > std::numeric_limits<float>::max());
static_assert(std::numeric_limits<double>::quiet_NaN() != std::numeric_limits<double>::quiet_NaN());
static_assert(1 + std::numeric_limits<double>::epsilon() > 1 && std::numeric_limits<float>::digits == 24);
template <class T> __global__ void kernel(T* p) {
  static_assert(std::is_same_v<decltype(std::sqrt(p[0])), T> && std::is_same_v<decltype(std::fma(p[0], p[1], p[2])), T>);
  std::uint32_t bits;
  std::memcpy(&bits, p, 4);
  p[0] = std::fma(std::sqrt(p[1]), std::abs(p[2]), T(bits)) + (std::isfinite(p[3]) ? T(1) : T(0));
})"});
  const nvrtc::compiler& with = *nvrtc::find(k_any);
  EXPECT_NO_THROW((void)with.compile("all.cuh", "kernel<float>", "sm_80", sources));
  EXPECT_NO_THROW((void)with.compile("all.cuh", "kernel<double>", "sm_90a", sources));
}

TEST(cuda_nvrtc, refusal_carries_the_compilers_log) {
  BALLAST_NEED_NVRTC();
  const nvrtc::source wrong[] = {{"wrong.cuh", "#include \"missing.cuh\"\n__global__ void kernel() {}\n"}};
  try {
    (void)nvrtc::find(k_any)->compile("wrong.cuh", "kernel", "sm_80", wrong);
    FAIL() << "no exception";
  } catch (const error& seen) {
    EXPECT_THAT(seen.what(), HasSubstr("missing.cuh"));
    EXPECT_THAT(seen.what(), HasSubstr("kernel for sm_80"));
  }
}

// --- who can write the cache -----------------------------------------------------------------------------------------------------------

TEST(digest, is_xxh3_of_128_bits) {
  EXPECT_EQ(digest(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(digest("abc"), "06b05ab6733a618578af5f94892f3950");
}

TEST_F(cuda_jit, an_entry_carries_the_digest_of_its_body) {
  const std::string entry = pack(sample("a"));
  EXPECT_EQ(entry.substr(20, k_digest_digits), digest(std::string_view(entry).substr(20 + k_digest_digits)));
  for (const std::size_t at : {std::size_t{20}, 20 + k_digest_digits, entry.size() - 1}) {
    std::string damaged = entry;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(unpack(damaged)) << at;
  }
}

TEST_F(cuda_jit, a_folder_or_entry_that_others_can_write_is_not_read) {
  const private_folder own(folder);
  EXPECT_EQ(own.write("entry", "mine"), "");
  EXPECT_EQ(own.read("entry"), "mine");
  for (const auto who : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(folder / "entry", who, fs::perm_options::add);
    EXPECT_EQ(own.read("entry"), std::nullopt);
    EXPECT_EQ(own.write("entry", "again"), "") << "and is replaced";
    EXPECT_EQ(own.read("entry"), "again");
    fs::permissions(folder, who, fs::perm_options::add);
    EXPECT_EQ(own.read("entry"), std::nullopt);
    EXPECT_THAT(own.write("entry", "mine"), HasSubstr("expected that only user"));
    EXPECT_THAT(kernel_cache({.folder = folder, .bundle = {}}).folder_state(), HasSubstr("expected that only user"));
    fs::permissions(folder, who, fs::perm_options::remove);
  }
  if (geteuid() == 0) {
    ASSERT_EQ(chown((folder / "entry").c_str(), 12345, 12345), 0);
    EXPECT_EQ(own.read("entry"), std::nullopt);
    EXPECT_EQ(own.write("entry", "mine"), "");
    ASSERT_EQ(chown(folder.c_str(), 12345, 12345), 0);
    EXPECT_EQ(own.read("entry"), std::nullopt);
    EXPECT_THAT(own.write("entry", "mine"), HasSubstr("got owner 12345"));
    ASSERT_EQ(chown(folder.c_str(), 0, 0), 0);
  }
  // A link, a FIFO and a folder in place of an entry.
  fs::create_symlink(folder / "entry", folder / "link");
  EXPECT_EQ(own.read("link"), std::nullopt);
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(own.read("fifo"), std::nullopt);
  EXPECT_EQ(own.read("."), std::nullopt);
}

TEST_F(cuda_jit, a_folder_is_made_for_this_user_alone_also_a_relative_one) {
  const mode_t before = umask(002);
  const fs::path here = fs::current_path();
  fs::current_path(folder);
  const private_folder relative("deep/cache/");
  EXPECT_EQ(kernel_cache({.folder = "other", .bundle = {}}).folder_state(), "writable");
  EXPECT_FALSE(fs::exists("deep") || fs::exists("other"));
  fs::current_path(here);
  EXPECT_EQ(relative.refusal(), "");
  EXPECT_EQ(relative.write("entry", "mine"), "");
  EXPECT_EQ(relative.read("entry"), "mine");
  umask(before);
  EXPECT_EQ(fs::status(folder / "deep" / "cache").permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(folder / "deep" / "cache" / "entry").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

// PTX of the bundle serves a device that has no machine code there, if nothing can compile.
TEST_F(cuda_jit, without_a_compiler_a_bundle_serves_other_devices_by_ptx) {
  BALLAST_NEED_NVRTC();
  kernel_cache maker = fresh();
  const image general = *maker.get(k_probe, "compute_90").made, machine = *maker.get(k_probe, "sm_90a").made;
  EXPECT_THAT(general.code, HasSubstr(".target sm_90"));
  const fs::path file = folder / "both.bundle";
  write_bundle(file, std::vector{general, machine});
  const auto with = [&](auto compiler) { return kernel_cache({.bundle = file, .compiler = compiler}); };
  const auto nothing = [](int) -> const nvrtc::compiler* { return nullptr; };
  kernel_cache without = with(nothing);
  EXPECT_EQ(without.why_not(12, 0, k_any), "");
  const auto got = without.get(k_probe, 12, 0, k_any);
  EXPECT_EQ(got.from, kernel_cache::origin::bundle);
  EXPECT_EQ(*got.made, general);
  EXPECT_EQ(without.why_not_ready({&k_probe, 1}, 12, 0, k_any, false), "");
  EXPECT_EQ(*without.get(k_probe, 9, 0, k_any).made, machine);
  // Devices that are too old, and drivers that know no code of this toolkit.
  EXPECT_THAT(without.why_not(8, 0, k_any), HasSubstr("has none"));
  EXPECT_THROW((void)without.get(k_probe, 8, 0, k_any), unsupported_error);
  EXPECT_THROW((void)without.get(k_probe, 12, 0, general.toolkit / 1000 - 1), unsupported_error);
  EXPECT_THROW((void)without.get(k_doubled, 12, 0, k_any), unsupported_error);
  // A compiler that knows the device makes machine code.
  kernel_cache able = with([](int newest) { return nvrtc::find(newest); });
  EXPECT_EQ(able.get(k_probe, 12, 0, k_any).from, kernel_cache::origin::compiler);
}

TEST_F(cuda_jit, a_bundle_replaces_no_device) {
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THROW(write_bundle(folder / "fifo", std::vector{sample("a")}), error);
  EXPECT_TRUE(fs::is_fifo(folder / "fifo"));
}

// --- cache on disk ---------------------------------------------------------------------------------------------------------------------

TEST_F(cuda_jit, compiles_once_then_reads) {
  BALLAST_NEED_NVRTC();
  kernel_cache first = fresh();
  EXPECT_EQ(first.get(k_probe, "sm_80").from, origin::compiler);
  EXPECT_EQ(first.get(k_probe, "sm_80").from, origin::memory);
  EXPECT_EQ(files().size(), 1u);
  kernel_cache second = fresh();
  const auto again = second.get(k_probe, "sm_80");
  EXPECT_EQ(again.from, origin::disk);
  EXPECT_EQ(*again.made, *first.get(k_probe, "sm_80").made);
  EXPECT_EQ(second.get(k_probe, "sm_90a").from, origin::compiler);
  EXPECT_EQ(second.get(k_doubled, "sm_80").from, origin::compiler);
  EXPECT_EQ(files().size(), 3u);
  EXPECT_EQ(second.folder_state(), "writable");
}

TEST_F(cuda_jit, a_device_gets_its_own_architecture_and_shares_the_disk) {
  BALLAST_NEED_NVRTC();
  kernel_cache first = fresh();
  EXPECT_EQ(first.why_not(9, 0, k_any), "");
  EXPECT_EQ(first.get(k_probe, 9, 0, k_any).from, origin::compiler);
  kernel_cache second = fresh();
  const auto got = second.get(k_probe, 9, 0, k_any);
  EXPECT_EQ(got.from, origin::disk);
  EXPECT_THAT(got.made->text, HasSubstr("architecture sm_90a\n"));
  EXPECT_EQ(second.get(k_probe, "sm_90a").from, origin::disk);
}

TEST_F(cuda_jit, replaces_damaged_entries) {
  BALLAST_NEED_NVRTC();
  const image good = *fresh().get(k_probe, "sm_80").made;
  ASSERT_EQ(files().size(), 1u);
  const fs::path file = files().front();
  const std::string content = read_all(file);

  std::string wrong_sum = content;
  wrong_sum[25] ^= 1;
  std::string wrong_code = content;
  wrong_code[content.size() / 2] ^= 16;
  const std::string other_kernel = pack(sample(request_text(k_doubled, "sm_80")));
  for (const std::string& damage : {content.substr(0, content.size() / 2), content.substr(0, 5), std::string(), wrong_sum, wrong_code,
                                    content + "more", other_kernel}) {
    write_all(file, damage);
    const auto got = fresh().get(k_probe, "sm_80");
    EXPECT_EQ(got.from, origin::compiler);
    EXPECT_EQ(got.made->name, good.name);
    const auto kept = unpack(read_all(file));
    ASSERT_TRUE(kept.has_value());
    EXPECT_EQ(kept->text, good.text);
    EXPECT_EQ(fresh().get(k_probe, "sm_80").from, origin::disk);
  }
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(cuda_jit, threads_that_want_the_same_wait_for_one_compilation) {
  BALLAST_NEED_NVRTC();
  kernel_cache cache = fresh();
  std::vector<kernel_cache::found> got(8);
  {
    std::vector<std::jthread> threads;
    for (auto& each : got) threads.emplace_back([&] { each = cache.get(k_probe, "sm_80"); });
  }
  int compiled = 0;
  for (const auto& each : got) {
    compiled += each.from == origin::compiler;
    EXPECT_EQ(each.made, got[0].made);
  }
  EXPECT_EQ(compiled, 1);
}

TEST_F(cuda_jit, several_kernels_are_made_at_once) {
  BALLAST_NEED_NVRTC();
  kernel_cache cache = fresh();
  const std::vector<kernel_request> both{k_probe, k_doubled, k_probe};
  cache.prepare(both, 9, 0, k_any);
  EXPECT_EQ(files().size(), 2u);
  for (const kernel_request& each : both) EXPECT_EQ(cache.get(each, 9, 0, k_any).from, origin::memory);
  cache.prepare({}, 9, 0, k_any);
  // The others are there when one fails.
  const kernel_request wrong{.header = "cuda/device/probe.cuh", .expression = "ballast::cuda::no_such_kernel"};
  kernel_cache again = fresh();
  EXPECT_THROW(again.prepare(std::vector{wrong, k_probe}, 9, 0, k_any), error);
  EXPECT_EQ(again.get(k_probe, 9, 0, k_any).from, origin::memory);
}

TEST_F(cuda_jit, processes_that_compile_the_same_leave_whole_entries) {
  BALLAST_NEED_NVRTC();
  // Each process compiles, writes and reads back while the others do; no moment may show them a part of an entry.
  std::vector<pid_t> children;
  for (int process = 0; process < 4; ++process) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool fine = true;
      for (int round = 0; round < 5; ++round) {
        kernel_cache cache = fresh();
        const auto got = cache.get(round % 2 == 0 ? k_probe : k_doubled, "sm_80");
        fine = fine && got.made->code.substr(1, 3) == "ELF" && cache.folder_state() == "writable";
        for (const fs::path& each : files()) {
          if (each.extension() == ".kernel") fine = fine && unpack(read_all(each)).has_value();
        }
      }
      _exit(fine ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(files().size(), 2u);
  EXPECT_EQ(fresh().get(k_probe, "sm_80").from, origin::disk);
}

TEST_F(cuda_jit, a_folder_that_cannot_be_made_costs_only_time) {
  BALLAST_NEED_NVRTC();
  write_all(folder / "file", "x");
  kernel_cache cache({.folder = folder / "file" / "cache", .bundle = {}});
  EXPECT_THAT(cache.folder_state(), HasSubstr("not writable"));
  EXPECT_EQ(cache.get(k_probe, "sm_80").from, origin::compiler);
  EXPECT_THAT(cache.folder_state(), HasSubstr("not writable"));
  EXPECT_THAT(cache.folder_state(), HasSubstr("file"));
}

TEST_F(cuda_jit, a_read_only_folder_is_still_read) {
  BALLAST_NEED_NVRTC();
  (void)fresh().get(k_probe, "sm_80");
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  kernel_cache cache = fresh();
  EXPECT_EQ(cache.get(k_probe, "sm_80").from, origin::disk);
  EXPECT_EQ(cache.get(k_doubled, "sm_80").from, origin::compiler);
  if (geteuid() != 0) {  // permissions do not bind root
    EXPECT_THAT(cache.folder_state(), HasSubstr("not writable"));
    EXPECT_EQ(files().size(), 1u);
  }
}

TEST_F(cuda_jit, a_failed_compilation_is_tried_again) {
  BALLAST_NEED_NVRTC();
  kernel_cache cache = fresh();
  const kernel_request wrong{.header = "cuda/device/probe.cuh", .expression = "ballast::cuda::no_such_kernel"};
  EXPECT_THROW(cache.get(wrong, "sm_80"), error);
  EXPECT_THROW(cache.get(wrong, "sm_80"), error);
  EXPECT_TRUE(files().empty());
}

TEST_F(cuda_jit, no_folder_is_no_cache) {
  const kernel_cache cache({.folder = {}, .bundle = {}});
  EXPECT_THAT(cache.folder_state(), HasSubstr("off"));
}

}  // namespace
}  // namespace ballast::cuda
