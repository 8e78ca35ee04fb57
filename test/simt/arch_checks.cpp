// See arch_checks.hpp. All numbers that are added or multiplied are small integers, so that results are exact.
// Layer: test.
#include "simt/arch_checks.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/arch/checks.hpp"

namespace arch_checks {
namespace {

using namespace ballast;
using arch::checks::chain_argument;
using arch::checks::copy_argument;
using arch::checks::product_argument;
using arch::checks::thread_argument;

// Device memory that is filled with values of the host.
template <class T>
class values {
 public:
  values(cuda::device& on, std::vector<T> content) : on_(on), content_(std::move(content)), memory_(on.allocate(bytes(), nullptr)) {
    on_.copy(memory_, content_.data(), bytes(), nullptr);
  }
  values(const values&) = delete;
  values& operator=(const values&) = delete;
  ~values() { on_.release(memory_, nullptr); }

  T* at() const { return static_cast<T*>(memory_); }
  const std::vector<T>& fetch() {
    on_.copy(content_.data(), memory_, bytes(), nullptr);
    on_.synchronize(nullptr);
    return content_;
  }

 private:
  std::int64_t bytes() const { return static_cast<std::int64_t>(content_.size() * sizeof(T)); }
  cuda::device& on_;
  std::vector<T> content_;
  void* memory_;
};

// Describes the first difference; empty if there is none.
template <class T>
std::string compare(const std::vector<T>& got, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i] != expected[i]) {
      return "element " + std::to_string(i) + ": expected " + std::to_string(expected[i]) + ", got " + std::to_string(got[i]);
    }
  }
  return "";
}

cuda::kernel_request request(const std::string& kernel, int threads, std::int64_t shared = 0, int cluster = 1) {
  cuda::kernel_request wanted;
  wanted.header = "cuda/arch/checks.cuh";
  wanted.expression = "ballast::arch::checks::" + kernel;
  wanted.threads = threads;
  wanted.shared = shared;
  wanted.cluster = cluster;
  return wanted;
}

// Returns elements of `words` 32-bit words each. All words are different: word w of element i is word number words · i + w.
std::vector<std::uint32_t> words(int elements, int words) {
  std::vector<std::uint32_t> content;
  for (int i = 0; i < elements * words; ++i) content.push_back(0x3f800000u + static_cast<std::uint32_t>(i));
  return content;
}

struct type {
  const char* name;
  int words;
};

// Checks that out[i] = in[source(i)], or 0 if source(i) is −1.
check copies(cuda::kernel_request wanted, type of, int blocks, copy_argument how, std::function<int(int)> source) {
  return {wanted, [=](cuda::device& on, const cuda::kernel& kernel) {
            const bool twice = wanted.expression.find("twice") != std::string::npos;
            const int units = wanted.expression.find("hinted") != std::string::npos ? 4 : twice ? 2 * arch::checks::k_twice : 1;
            const int count = blocks * wanted.threads * units;
            const auto content = words(count, of.words);
            values<std::uint32_t> in(on, content);
            values<std::uint32_t> out(on, std::vector<std::uint32_t>(content.size(), 1));
            copy_argument argument = how;
            argument.in = in.at();
            argument.out = out.at();
            on.launch(kernel, blocks, &argument, sizeof argument, nullptr);
            std::vector<std::uint32_t> expected(content.size(), 0);
            for (int i = 0; i < count; ++i) {
              const int from = source(i);
              if (from < 0) continue;
              std::memcpy(&expected[static_cast<std::size_t>(i * of.words)], &content[static_cast<std::size_t>(from * of.words)],
                          static_cast<std::size_t>(of.words) * 4);
            }
            return compare(out.fetch(), expected);
          }};
}

check bulk_copies() {
  return {request("bulk_kernel<0>", 64, 1024 + 16), [](cuda::device& on, const cuda::kernel& kernel) {
            std::vector<float> content;
            std::vector<float> expected;
            for (int i = 0; i < 5 * 256; ++i) {
              content.push_back(static_cast<float>(i));
              expected.push_back(static_cast<float>(2 * i));
            }
            values<float> in(on, content);
            values<float> out(on, std::vector<float>(content.size(), -1));
            const copy_argument argument{in.at(), out.at(), 0, 5};
            on.launch(kernel, 1, &argument, sizeof argument, nullptr);
            return compare(out.fetch(), expected);
          }};
}

check threads() {
  return {request("thread_kernel<256>", 256), [](cuda::device& on, const cuda::kernel& kernel) -> std::string {
            constexpr int k_blocks = 6;
            values<std::uint32_t> warps(on, std::vector<std::uint32_t>(k_blocks, 1));
            values<std::uint64_t> times(on, std::vector<std::uint64_t>(3 * k_blocks, 0));
            const thread_argument argument{warps.at(), times.at()};
            on.launch(kernel, k_blocks, &argument, sizeof argument, nullptr);
            const std::string wrong = compare(warps.fetch(), std::vector<std::uint32_t>(k_blocks, 28));
            if (!wrong.empty()) return wrong;
            const auto& seen = times.fetch();
            for (std::size_t b = 0; b < k_blocks; ++b) {
              if (seen[3 * b] == 0) return "block " + std::to_string(b) + " took no time";
              if (seen[3 * b + 1] == 0) return "the global time is zero";
              if (seen[3 * b + 2] >= static_cast<std::uint64_t>(on.about().multiprocessors)) {
                return "expected one of " + std::to_string(on.about().multiprocessors) + " multiprocessors, got " +
                       std::to_string(seen[3 * b + 2]);
              }
            }
            return "";
          }};
}

check chain() {
  return {request("chain_kernel<unsigned long>", 64), [](cuda::device& on, const cuda::kernel& kernel) {
            constexpr std::uint64_t k_blocks = 300;
            std::uint64_t expected = 0;
            for (std::uint64_t b = 0; b < k_blocks; ++b) expected = 3 * expected + b;
            values<std::uint32_t> tickets(on, {0});
            values<std::uint32_t> done(on, {0});
            values<std::uint32_t> started(on, std::vector<std::uint32_t>(k_blocks, 0));
            values<std::uint64_t> sum(on, {0});
            const chain_argument argument{tickets.at(), done.at(), started.at(), sum.at()};
            on.launch(kernel, k_blocks, &argument, sizeof argument, nullptr);
            const std::string wrong = compare(sum.fetch(), {expected});
            return wrong.empty() ? compare(started.fetch(), std::vector<std::uint32_t>(k_blocks, 1)) : wrong;
          }};
}

// Checks D = A·B + `first`, with B stored by columns or by rows.
template <class T>
check product(cuda::kernel_request wanted, int m, int n, int k, bool by_columns, T first) {
  return {std::move(wanted), [=](cuda::device& on, const cuda::kernel& kernel) {
            std::vector<T> a;
            std::vector<T> b;
            for (int i = 0; i < m * k; ++i) a.push_back(static_cast<T>(i * 7 % 23 - 11));
            for (int i = 0; i < n * k; ++i) b.push_back(static_cast<T>(i * 5 % 19 - 9));
            std::vector<T> expected;
            for (int row = 0; row < m; ++row) {
              for (int column = 0; column < n; ++column) {
                T sum = first;
                for (int i = 0; i < k; ++i) {
                  sum +=
                      a[static_cast<std::size_t>(row * k + i)] * b[static_cast<std::size_t>(by_columns ? column * k + i : i * n + column)];
                }
                expected.push_back(sum);
              }
            }
            values<T> in_a(on, a);
            values<T> in_b(on, b);
            values<T> d(on, std::vector<T>(expected.size(), first));
            const product_argument argument{in_a.at(), in_b.at(), d.at()};
            on.launch(kernel, 1, &argument, sizeof argument, nullptr);
            return compare(d.fetch(), expected);
          }};
}

check warpgroup_product(int n, int k, const std::string& swizzle) {
  const std::string kernel =
      "wgmma_product_kernel<" + std::to_string(n) + ", " + std::to_string(k) + ", ballast::arch::swizzle::" + swizzle + ", 0>";
  return product<float>(request(kernel, 128, n * 2 * k), 64, n, k, true, 0);
}

}  // namespace

std::vector<check> all(int major) {
  std::vector<check> checks{threads(),
                            chain(),
                            product<float>(request("warp_product_kernel<float, 16>", 32), 16, 8, 8, false, 3),
                            product<float>(request("half_product_kernel<16>", 32), 16, 8, 16, false, 3),
                            product<double>(request("warp_product_kernel<double, 8>", 32), 8, 8, 4, false, 0.5),
                            product<double>(request("warp_product_kernel<double, 16>", 32), 16, 8, 8, false, 0.5)};
  for (const type of : {type{"float", 1}, type{"float2", 2}, type{"float4", 4}, type{"double", 2}, type{"double2", 4}}) {
    const std::string name(of.name);
    const auto in_place = [](int i) { return i; };
    const auto from_right = [](int i) { return i / 128 * 128 + (i + 32) % 128; };  // blocks of 32, clusters of 4
    const auto doubled = [](int i) {                                               // blocks of 2 k_twice units of 32
      const int block = i / (64 * arch::checks::k_twice) * (64 * arch::checks::k_twice);
      return block + (i - block) / 64 * 32 + i % 32;
    };
    const auto rotated = [](int i) { return i >= 85 && i < 95 ? -1 : (i + 1) % 96; };
    checks.push_back(copies(request("hinted_copy_kernel<" + name + ">", 32), of, 3, {}, in_place));
    checks.push_back(copies(request("twice_kernel<" + name + ", 0>", 32, 32 * 4 * of.words), of, 3, {}, doubled));
    checks.push_back(copies(request("async_copy_kernel<" + name + ">", 96, 96 * 4 * of.words), of, 1, {nullptr, nullptr, 10, 0}, rotated));
    if (major < 9) continue;
    checks.push_back(copies(request("ring_kernel<" + name + ", 0>", 32, 32 * 4 * of.words, 4), of, 12, {}, from_right));
    checks.push_back(copies(request("push_kernel<" + name + ">", 32, 32 * 4 * of.words, 4), of, 12, {}, from_right));
  }
  if (major >= 9) checks.push_back(bulk_copies());
  if (major == 9) {
    for (const auto& [n, k, swizzle] : {std::tuple{8, 64, "bytes_128"}, std::tuple{24, 32, "bytes_64"}, std::tuple{32, 16, "bytes_32"},
                                        std::tuple{64, 48, "none"}, std::tuple{128, 64, "bytes_128"}, std::tuple{96, 16, "none"}}) {
      checks.push_back(warpgroup_product(n, k, swizzle));
    }
    for (const int n : {24, 128})
      checks.push_back(product<float>(request("wgmma_tf32_product_kernel<" + std::to_string(n) + ">", 128, n * 128), 64, n, 32, true, 0));
  }
  return checks;
}

}  // namespace arch_checks
