// Copies between host and device, and launches: the templates of engine.hpp that its files share.
// Layer: backend "cuda" of K-Means, host.
#pragma once

#include <type_traits>

#include "core/memory.hpp"
#include "kmeans/cuda/engine/engine.hpp"

namespace ballast::kmeans::cuda {

template <class T>
template <class Value>
lane_buffer cuda_engine<T>::upload(const core::vector<Value>& values) const {
  buffer made = allocate(static_cast<std::int64_t>(values.size() * sizeof(Value)));
  device_->copy(made.data(), values.data(), made.bytes(), call_.order());
  return made;
}

template <class T>
template <class Value>
core::vector<Value> cuda_engine<T>::download(const buffer& from, std::int64_t count) const {
  core::vector<Value> made(at(count));
  download(made.data(), from.data(), count * static_cast<std::int64_t>(sizeof(Value)));
  return made;
}

template <class T>
template <class Make, class Arguments>
void cuda_engine<T>::launch(int number, Make&& make, std::int64_t blocks, const Arguments& given, bool strike) const {
  if constexpr (std::is_invocable_v<Make, bool>) {
    if (strike && call_.instrumented()) return call_.launch(state_.load(number, true, make), blocks, given);
  }
  device_->launch(state_.load(number, false, make), blocks, &given, sizeof given, call_.order());
}

template <class T>
template <class Make, class Arguments>
void cuda_engine<T>::launch_given(int number, Make&& make, std::int64_t blocks, const Arguments& given) const {
  const bool of_16_bits = half();
  number += of_16_bits ? 1 : 0;
  if constexpr (std::is_invocable_v<Make, bool, bool>) {
    launch(
        number, [&](bool instrumented) { return make(of_16_bits, instrumented); }, blocks, given);
  } else {
    launch(
        number, [&] { return make(of_16_bits); }, blocks, given);
  }
}

}  // namespace ballast::kmeans::cuda
