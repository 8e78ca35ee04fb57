// Copies between host and device, and launches: the templates of engine.hpp that its files share.
// Layer: backend "cuda" of K-Means, host.
#pragma once

#include "kmeans/cuda/engine/engine.hpp"

namespace ballast::kmeans::cuda {

template <class T>
template <class Value>
ballast::cuda::device_buffer cuda_engine<T>::upload(const std::vector<Value>& values) const {
  buffer made = allocate(static_cast<std::int64_t>(values.size() * sizeof(Value)));
  device_->copy(made.data(), values.data(), made.bytes(), call_.order());
  return made;
}

template <class T>
template <class Value>
std::vector<Value> cuda_engine<T>::download(const buffer& from, std::int64_t count) const {
  std::vector<Value> made(at(count));
  download(made.data(), from.data(), count * static_cast<std::int64_t>(sizeof(Value)));
  return made;
}

template <class T>
template <class Arguments>
void cuda_engine<T>::launch(const ballast::cuda::kernel_request& production, const ballast::cuda::kernel_request& instrumented,
                            std::int64_t blocks, const Arguments& given, bool strike) const {
  if (strike && call_.instrumented()) {
    call_.launch(device_->load(instrumented), blocks, given);
  } else {
    device_->launch(device_->load(production), blocks, &given, sizeof given, call_.order());
  }
}

template <class T>
template <class Arguments>
void cuda_engine<T>::launch(const ballast::cuda::kernel_request& which, std::int64_t blocks, const Arguments& given) const {
  device_->launch(device_->load(which), blocks, &given, sizeof given, call_.order());
}

}  // namespace ballast::kmeans::cuda
