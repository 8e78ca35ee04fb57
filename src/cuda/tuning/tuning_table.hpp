// Tuning tables: which choice an algorithm's kernels get on an architecture, where measuring found a better one than the algorithm's rules.
// One file holds the entries of all algorithms, one a line, the algorithm's name first: "fft sm_90 f32 1024 … 1.08".
// Layer: foundation. `ballast tune` writes the file; each algorithm says what its lines mean.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::cuda {

// A line of the file without its algorithm.
struct tuning_line {
  int number;  // from 1
  std::string algorithm;
  std::string text;
};

// All lines but empty ones and comments, which begin with #. Lines that begin with an architecture are from before lines named their
// algorithm: they are the FFT's.
std::vector<tuning_line> tuning_lines(std::string_view text);

// The lines of `text` that are not of this algorithm, as they stand there: what a tuner of this algorithm keeps when it writes the file.
std::string tuning_lines_of_others(std::string_view text, std::string_view algorithm);

// A warning for each line of an algorithm that is not among `known`: this version skips it.
std::vector<std::string> tuning_warnings(std::string_view text, const std::vector<std::string_view>& known);

// tuning.txt in the cache folder, which plans read; empty if there is no cache folder. And what it holds, "" if it is not there.
std::filesystem::path user_tuning_file();
std::string user_tuning();

// What a line should have had in a place, thrown by an algorithm's reader.
class unknown_tuning : public std::runtime_error {
 public:
  explicit unknown_tuning(const std::string& expected) : std::runtime_error(expected) {}
};

// "sm_90" as 90; throws unknown_tuning for what is no architecture.
int read_architecture(const std::string& word);

// The entries of one algorithm. Form says what its lines mean:
//   struct form {
//     struct key { … };    // what an entry is found by, ordered: the major compute capability, precision, sizes, …
//     struct value { … };  // what is tuned, and its measured gain
//     static constexpr std::string_view algorithm = "kmeans", built_in = "kmeans sm_90 …\n…";
//     static void read(std::istream& words, key&, value&);  // throws unknown_tuning for what it does not know
//     static void write(std::ostream&, const key&, const value&);
//   };
template <class Form>
class tuning_entries {
 public:
  using key = typename Form::key;
  using value = typename Form::value;

  // The lines of this algorithm in `text`. A line that this version does not know is skipped with a warning: another version wrote it.
  static tuning_entries parse(std::string_view text) {
    tuning_entries made;
    made.read(text);
    return made;
  }
  // The built-in entries, and over them those of the user's file.
  static tuning_entries installed() {
    tuning_entries made = parse(Form::built_in);
    made.read(user_tuning());
    return made;
  }

  // Every entry as a line; behind them the lines that were skipped, so that writing the file loses nothing.
  std::string to_text() const {
    std::ostringstream text;
    for (const auto& [k, v] : entries_) {
      text << Form::algorithm << ' ';
      Form::write(text, k, v);
      text << '\n';
    }
    for (const std::string& line : skipped_) text << Form::algorithm << ' ' << line << '\n';
    return text.str();
  }

  void set(const key& at, value chosen) { entries_.insert_or_assign(at, std::move(chosen)); }
  std::optional<value> find(const key& at) const {
    const auto found = entries_.find(at);
    return found == entries_.end() ? std::nullopt : std::optional<value>(found->second);
  }
  const std::map<key, value>& entries() const noexcept { return entries_; }

  // What was skipped: "tuning table, line 3: expected …, got "…"; skipped".
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  void read(std::string_view text) {
    for (const tuning_line& line : tuning_lines(text)) {
      if (line.algorithm != Form::algorithm) continue;
      try {
        std::istringstream words(line.text);
        key at{};
        value chosen{};
        Form::read(words, at, chosen);
        set(at, std::move(chosen));
      } catch (const unknown_tuning& wrong) {
        skipped_.push_back(line.text);
        warnings_.push_back("tuning table, line " + std::to_string(line.number) + ": expected " + wrong.what() + ", got \"" + line.text +
                            "\"; skipped");
      }
    }
  }

  std::map<key, value> entries_;
  std::vector<std::string> skipped_, warnings_;
};

}  // namespace ballast::cuda
