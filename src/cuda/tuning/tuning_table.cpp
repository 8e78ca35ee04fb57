// Parses the lines of the tuning file.
#include "cuda/tuning/tuning_table.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "cuda/system/installation.hpp"

namespace ballast::cuda {

namespace {

// Calls each(number, line, algorithm, rest of the line).
template <class Each>
void for_each_line(std::string_view text, Each&& each) {
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    const std::size_t end = std::min(line.find_first_of(" \t\r", first), line.size());
    const std::string word = line.substr(first, end - first);
    const bool unnamed = word.starts_with("sm_");
    const std::size_t rest = unnamed ? first : std::min(line.find_first_not_of(" \t\r", end), line.size());
    each(number, line, unnamed ? "fft" : word, line.substr(rest));
  }
}

}  // namespace

std::vector<tuning_line> tuning_lines(std::string_view text) {
  std::vector<tuning_line> made;
  for_each_line(text, [&](int number, const std::string&, const std::string& algorithm, const std::string& rest) {
    made.push_back({number, algorithm, rest});
  });
  return made;
}

std::string tuning_lines_of_others(std::string_view text, std::string_view algorithm) {
  std::string made;
  for_each_line(text, [&](int, const std::string& line, const std::string& name, const std::string&) {
    if (name != algorithm) made += line + '\n';
  });
  return made;
}

std::vector<std::string> tuning_warnings(std::string_view text, const std::vector<std::string_view>& known) {
  std::vector<std::string> made;
  for (const tuning_line& line : tuning_lines(text)) {
    if (std::ranges::find(known, std::string_view(line.algorithm)) != known.end()) continue;
    made.push_back("tuning table, line " + std::to_string(line.number) + ": this version tunes no algorithm \"" + line.algorithm +
                   "\"; skipped");
  }
  return made;
}

std::filesystem::path user_tuning_file() {
  const auto folder = default_cache_folder();
  return folder.empty() ? folder : folder / "tuning.txt";
}

std::string user_tuning() {
  const auto path = user_tuning_file();
  std::ifstream file;
  if (!path.empty()) file.open(path);
  std::ostringstream text;
  if (file.is_open()) text << file.rdbuf();
  return text.str();
}

int read_architecture(const std::string& word) {
  int capability = 0;
  const char* const end = word.data() + word.size();
  if (!word.starts_with("sm_")) throw unknown_tuning("an architecture like sm_90");
  if (std::from_chars(word.data() + 3, end, capability).ec != std::errc{}) throw unknown_tuning("an architecture like sm_90");
  return capability;
}

}  // namespace ballast::cuda
