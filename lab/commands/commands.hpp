// The subcommands of came-lab: each adds itself to the command line and does its work when it was asked for.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace lab {

/// For options of type uint64_t: by itself the parser takes -1 for 2^64 - 1 and cuts what is too large.
inline const CLI::Validator kWholeNumber(
    [](std::string& text) {
      uint64_t value = 0;
      const char* const end = text.data() + text.size();
      const auto [parsed, error] = std::from_chars(text.data(), end, value);
      return error == std::errc() && parsed == end ? "" : text + " is no whole number from 0 to 2^64 - 1";
    },
    "");

/// came-lab data: text to tokens.
void add_data(CLI::App& program);
/// came-lab train: a model, an optimizer, a run.
void add_train(CLI::App& program);
/// came-lab eval: loss of a checkpoint on validation text.
void add_eval(CLI::App& program);
/// came-lab generate: text from a prompt.
void add_generate(CLI::App& program);
/// came-lab export: a folder that transformers loads.
void add_export(CLI::App& program);
/// came-lab compare: several runs in one table and one picture.
void add_compare(CLI::App& program);

}  // namespace lab
