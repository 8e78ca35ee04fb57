// Tables and launches of sparse maps.
#include "fft/cuda/run/line_maps.hpp"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>

#include <ballast/error.hpp>

#include "abft/attempt.hpp"
#include "cuda/jit/expression.hpp"

namespace ballast::fft::cuda {

ballast::cuda::kernel_request map_kernel_request(const map_policy& p, bool instrumented) {
  const std::string policy = ballast::cuda::policy_text(p, "ballast::fft::cuda::map_policy")
                                 .add("wide", &map_policy::wide)
                                 .add("check", &map_policy::check)
                                 .add("copies", &map_policy::copies)
                                 .add("across", &map_policy::across)
                                 .text();
  ballast::cuda::kernel_request made;
  made.header = "fft/cuda/kernel/map.cuh";
  made.expression = ballast::cuda::kernel_expression("ballast::fft::cuda::map_kernel", {policy}, instrumented);
  made.threads = k_map_threads;
  made.spills = instrumented ? 4096 : 0;  // strikes are calls, and a thread keeps its numbers in memory across a call
  return made;
}

std::vector<ballast::cuda::kernel_request> map_kernels() {
  std::vector<ballast::cuda::kernel_request> made;
  for (const bool wide : {false, true}) {
    for (const bool check : {false, true}) {
      for (const bool copies : {false, true}) {
        for (const bool across : {false, true}) made.push_back(map_kernel_request({wide, check, copies, across}, false));
      }
    }
  }
  return made;
}

map_side memory_side(std::int64_t size) { return array_side_of(1, {{std::numeric_limits<std::int64_t>::max(), size}}); }

map_side array_side_of(std::int64_t scalar, const std::vector<std::pair<std::int64_t, std::int64_t>>& counts_and_distances) {
  map_side made{};
  made.scalar = scalar;
  for (const auto& [count, distance] : counts_and_distances) {
    if (count == 1) continue;
    if (made.loops > 0 && made.distance[made.loops - 1] == distance * count) {
      made.count[made.loops - 1] *= count;
      made.distance[made.loops - 1] = distance;
      continue;
    }
    if (made.loops == k_map_loops) throw std::logic_error("fft: more loops than lines");
    made.count[made.loops] = count;
    made.distance[made.loops++] = distance;
  }
  return made;
}

namespace {

template <class V>
std::size_t append(std::vector<unsigned char>& to, const std::vector<V>& values) {
  const std::size_t at = (to.size() + 15) / 16 * 16;
  to.resize(at + values.size() * sizeof(V));
  if (!values.empty()) std::memcpy(to.data() + at, values.data(), values.size() * sizeof(V));
  return at;
}

std::uint32_t narrow(std::int64_t value) {
  if (value < 0 || value > std::numeric_limits<std::uint32_t>::max())
    throw unsupported_error("fft: expected real-to-real lines of at most 2^30 points on cuda, got more");
  return static_cast<std::uint32_t>(value);
}

}  // namespace

template <class T>
std::vector<unsigned char> map_tables::bytes_of(real_kind kind, std::int64_t n, std::vector<one>& maps) {
  const fft::line_program program = real_line_program(kind, n);
  std::vector<unsigned char> bytes;
  maps.clear();
  const auto add = [&](const line_map& each) {
    std::vector<std::uint32_t> begin, index;
    std::vector<T> factors;
    for (const std::int64_t value : each.begin) begin.push_back(narrow(value));
    for (const line_map::term& term : each.terms) {
      index.push_back(narrow(term.index));
      factors.push_back(static_cast<T>(term.factor));
    }
    one now{each.rows(), each.to, 0, 0, 0};
    now.begin = append(bytes, begin);
    now.index = append(bytes, index);
    now.factor = append(bytes, factors);
    maps.push_back(now);
  };
  add(program.before);
  for (const line_map& each : program.after) add(each);
  return bytes;
}

map_tables::map_tables(const std::shared_ptr<ballast::cuda::device>& on, precision type, real_kind kind, std::int64_t n, bool check) {
  const bool single = type == precision::f32;
  const std::string name = std::string("fft ") + (single ? "f32 " : "f64 ") + std::string(to_string(kind)) + ' ' + std::to_string(n);
  const auto make = [&](std::vector<one>& maps) { return single ? bytes_of<float>(kind, n, maps) : bytes_of<double>(kind, n, maps); };
  std::vector<unsigned char> first = make(maps_), second;
  for (int attempt = 0; check; ++attempt) {
    std::vector<one> maps;
    second = make(maps);
    if (first == second) break;
    if (attempt == abft::k_repeats)
      throw error("table " + name + ": expected the same bits from two computations, got others in each of " +
                  std::to_string(abft::k_repeats + 1) + " attempts");
    first = std::move(second);
    maps_ = std::move(maps);
  }
  tables_[0] = ballast::cuda::share_table(on, name, 0, [&]() -> const std::vector<unsigned char>& { return first; });
  if (check) tables_[1] = ballast::cuda::share_table(on, name, 1, [&]() -> const std::vector<unsigned char>& { return second; });
}

void map_tables::set(map_arguments& to, std::size_t number) const {
  const one& of = maps_[number];
  to.rows = of.rows;
  for (int copy = 0; copy < 2 && tables_[copy] != nullptr; ++copy) {
    const auto* const base = static_cast<const unsigned char*>(tables_[copy]->data());
    to.begin[copy] = reinterpret_cast<const std::uint32_t*>(base + of.begin);
    to.index[copy] = reinterpret_cast<const std::uint32_t*>(base + of.index);
    to.factor[copy] = base + of.factor;
  }
}

void map_launcher::launch(const ballast::cuda::device_call& call, map_arguments a, std::int64_t lines_in_all) const {
  const auto lies_across = [&](const map_side& side) {
    return side.loops > 0 && std::abs(side.distance[side.loops - 1]) < std::abs(side.scalar);
  };
  const map_policy p{wide_, check_, a.begin[0] == nullptr, lies_across(a.from) || lies_across(a.to)};
  const ballast::cuda::kernel_request wanted = map_kernel_request(p, call.instrumented());
  const ballast::cuda::kernel* kernel = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& slot = kernels_[wanted.expression];
    if (slot == nullptr) slot = &device_->load(wanted);
    kernel = slot;
  }
  const std::int64_t blocks = map_blocks(p, a.rows, a.lines);
  a.events = call.events();
  a.first_block = map_blocks(p, a.rows, a.first_line);
  a.all_blocks = map_blocks(p, a.rows, lines_in_all);
  call.launch(*kernel, blocks, a);
}

}  // namespace ballast::fft::cuda
