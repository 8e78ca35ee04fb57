// The part of an array that one device of a group computes: read from the memory of the caller and stored there, on the host or a device.
// Layer: algorithm, over the boxes of a group.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/fft_group.hpp>

#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"
#include "fft/api/boxes.hpp"

namespace ballast::fft {

// Copies and compares, three times at most. Returns whether the copy has the bits. The ranks have agreed on their report before: it does
// not name a copy that was repeated.
inline bool copies_alike(void* to, const void* from, std::size_t bytes) {
  for (int trial = 0; trial < 3 && bytes > 0; ++trial) {
    std::memcpy(to, from, bytes);
    if (std::memcmp(to, from, bytes) == 0) return true;
  }
  return bytes == 0;
}

// Calls stretch(place in the whole box, place in the part, count) for each stretch of elements of a part that are neighbours in the memory
// of the whole, which has the same order of axes.
template <class Stretch>
void each_stretch(const box& whole, const box& part, Stretch&& stretch) {
  const places at(whole);
  const auto count = [&](const box& of, int axis) { return of.count[static_cast<std::size_t>(axis)]; };
  int depth = 2;  // the stretches have the axes of order[depth] and later
  std::int64_t length = count(part, part.order[2]);
  while (depth > 0 && count(part, part.order[static_cast<std::size_t>(depth)]) == count(whole, part.order[static_cast<std::size_t>(depth)]))
    length *= count(part, part.order[static_cast<std::size_t>(--depth)]);
  const std::int64_t slow = depth > 0 ? count(part, part.order[0]) : 1, middle = depth > 1 ? count(part, part.order[1]) : 1;
  for (std::int64_t i = 0; i < slow; ++i)
    for (std::int64_t j = 0; j < middle; ++j)
      stretch(at.of(part) + i * at.stride(part.order[0]) + j * at.stride(part.order[1]), (i * middle + j) * length, length);
}

// Element: const for a part that is read. Copies on the host are compared with what was copied.
template <class Element>
class part_of_array {
 public:
  using value = std::remove_const_t<Element>;

  // `all`: the whole box. `lines_first`: the part is read by a plan on the current device of the thread, else by the host.
  part_of_array(std::span<Element> all, const box& whole, const box& part, bool lines_first) : all_(all), whole_(whole), part_(part) {
    if (part.size() == 0) return;
    on_host_ = ballast::cuda::residence_of(all.data()) != ballast::cuda::residence::device;
    std::int64_t stretches = 0, first = 0;
    each_stretch(whole, part, [&](std::int64_t place, std::int64_t at, std::int64_t) {
      ++stretches;
      if (at == 0) first = place;
    });
    const auto size = static_cast<std::size_t>(part.size());
    if (stretches == 1 && on_host_) {
      view_ = all.subspan(static_cast<std::size_t>(first), size);
      return;
    }
    copied_ = true;
    if constexpr (std::is_const_v<Element>) {
      if (!on_host_ && lines_first) {
        const auto device = ballast::cuda::current_device();
        if (stretches == 1 && device->accessible(all.data())) {
          view_ = all.subspan(static_cast<std::size_t>(first), size);
          return;
        }
        there_ = ballast::cuda::device_buffer(device, static_cast<std::int64_t>(size * sizeof(value)));
        view_ = {static_cast<Element*>(there_.data()), size};
        move(static_cast<value*>(there_.data()), true);
        return;
      }
    }
    here_.resize(size);
    view_ = here_;
    if constexpr (std::is_const_v<Element>) move(here_.data(), true);
  }

  std::span<Element> view() const { return view_; }
  // Stores what was written to view().
  void commit() {
    if (copied_) move(here_.data(), false);
  }

 private:
  // Copies all stretches between the array and `part`.
  void move(value* part, bool load) {
    const auto device = on_host_ ? nullptr : ballast::cuda::current_device();
    each_stretch(whole_, part_, [&](std::int64_t place, std::int64_t at, std::int64_t count) {
      value* const outer = const_cast<value*>(all_.data()) + place;
      value* const to = load ? part + at : outer;
      const value* const from = load ? outer : part + at;
      const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(value));
      if (device != nullptr)
        device->copy(to, from, bytes, nullptr);
      else if (!copies_alike(to, from, static_cast<std::size_t>(bytes)))
        throw error("fft: expected the bits of a part of the array after it was copied, got others three times");
    });
    if (device != nullptr) device->synchronize(nullptr);
  }

  std::span<Element> all_, view_;
  box whole_, part_;
  bool on_host_ = true, copied_ = false;
  std::vector<value> here_;
  ballast::cuda::device_buffer there_;
};

}  // namespace ballast::fft
