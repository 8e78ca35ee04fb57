// Runs a fuzz target without libFuzzer: on each file of the folder that is the argument, and on a fixed series of changed files.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr int k_changed = 100000;

void run(const std::string& input) { LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size()); }

// Changes a few places: bytes, repeated parts, parts of other files, and texts that mean something to the readers.
std::string changed(std::string input, const std::vector<std::string>& all, std::mt19937& random) {
  static constexpr std::array<std::string_view, 28> words = {
      ",",     ";", "\t", "\n", "\r\n", "\"",  "\"\"",  "#",     "#N/A",   "#NV",  "NA", "nan", "inf", "-", "\xe2\x88\x92", "\xef\xbb\xbf",
      "1e999", "j", "(",  ")",  "0",    "1.5", "'<f8'", "'>i2'", "(2, 3)", "True", "x",  " "};
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random()) % std::max<std::size_t>(limit, 1); };
  for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
    const std::size_t at = below(input.size() + 1), count = below(std::min<std::size_t>(input.size() - at, 16) + 1);
    switch (below(6)) {
      case 0: input.insert(at, words[below(words.size())]); break;
      case 1: input.erase(at, count); break;
      case 2: input.insert(at, input.substr(at, count)); break;
      case 3:
        if (at < input.size()) input[at] = static_cast<char>(random());
        break;
      case 4: input.replace(at, count, words[below(words.size())]); break;
      default: {
        const std::string& other = all[below(all.size())];
        input.insert(at, other, below(other.size()), below(32));
      }
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) std::ranges::copy(std::filesystem::directory_iterator(argv[i]), std::back_inserter(files));
  std::ranges::sort(files);
  std::vector<std::string> all;
  for (const auto& each : files) {
    std::ifstream in(each, std::ios::binary);
    all.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    run(all.back());
  }
  if (all.empty()) {
    std::fputs("expected a folder with files, got none\n", stderr);
    return 1;
  }
  std::mt19937 random(1);
  for (int i = 0; i < k_changed; ++i) run(changed(all[static_cast<std::size_t>(random()) % all.size()], all, random));
  std::printf("%zu files and %d changed ones\n", all.size(), k_changed);
  return 0;
}
