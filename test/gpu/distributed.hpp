// Lists of devices and executions for the parts of the stage `distributed`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/kmeans.hpp>

#include "algorithm.hpp"

namespace ballast::gpu_check {

// A fit whose bits are compared with those of one device, with what its points and options are beside the token.
struct compared_fit {
  const char* token;
  kmeans::init init;
  bool weighted;
  double largest;  // a coordinate of one point; 0: as the others

  kmeans::options options() const { return {.init = init, .max_iter = 20, .seed = 5}; }
};
std::span<const compared_fit> compared_fits();
// Its points and weights.
template <class T>
struct fit_operands {
  explicit fit_operands(const compared_fit& what);
  std::vector<T> points, weights;
};
// The fits whose iterations are timed, by two fits of k_few and k_many iterations.
std::span<const char* const> timed_fits(bool quick);
inline constexpr int k_few = 4, k_many = 104;

template <class T>
bool same_bits(const kmeans::model<T>& a, const kmeans::model<T>& b) {
  const auto bytes = static_cast<std::size_t>(a.centroids.size()) * sizeof(T);
  return std::memcmp(a.centroids.data(), b.centroids.data(), bytes) == 0 && a.labels == b.labels && a.iterations == b.iterations &&
         std::memcmp(&a.inertia, &b.inertia, sizeof a.inertia) == 0;
}

// The lists of devices: one of them, and all; of a single device two ranks on it.
std::vector<std::vector<int>> device_lists();
std::string text_of(const std::vector<int>& devices);
// `devices` empty: a call without a group on the first device.
execution where_of(const std::vector<int>& devices, protection level);

// Calls work(first, last) for parts of [0, count) in threads of its own.
void work_in_threads(std::int64_t count, const std::function<void(std::int64_t first, std::int64_t last)>& work);

// QR and transforms, those of wanted.tokens if there are any, or its own. Prints rows of type "distributed call"; returns how many calls
// had a wrong result, an alarm or an exception.
int distributed_calls(const settings& wanted, const time_limit& limit);

}  // namespace ballast::gpu_check
