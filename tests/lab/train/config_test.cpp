// Configurations: what a file says is what a run does, and what makes no sense is refused by name.
#include "train/config.hpp"
#include "models/model.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <type_traits>
#include <vector>

#include "error.hpp"
#include "train/optimizers.hpp"
#include "train/schedule.hpp"

namespace lab {
namespace {

std::filesystem::path write_toml(const std::string& text) {
  const auto path =
      std::filesystem::temp_directory_path() /
      (std::string("came_lab_config_") + testing::UnitTest::GetInstance()->current_test_info()->name() + ".toml");
  std::ofstream(path) << text;
  return path;
}

std::string error_of(const std::string& toml) {
  TrainConfig config;
  try {
    read_config(config, write_toml(toml));
    resolve_config(config);
  } catch (const Error& error) {
    const std::string message = error.what();
    const size_t name = message.rfind(".toml");
    return name == std::string::npos ? message : message.substr(name + 5);
  }
  return "no error";
}

TEST(LabConfig, IsTheSameAfterItWasWrittenAndRead) {
  TrainConfig config;
  config.model = "bert-\"mini\"\n";
  config.lr = 0.1 + 0.2;
  config.seed = 18;
  config.next_sentence = true;
  config.options = {{"beta3", "0.9999"}, {"momentum_dtype", "int8"}};
  TrainConfig read;
  read_config(read, write_toml(config_text(config)));
  EXPECT_EQ(config_text(read), config_text(config));
  EXPECT_EQ(read.lr, config.lr);
  EXPECT_EQ(read.model, config.model);
  EXPECT_EQ(read.options, config.options);
}

TEST(LabConfig, TakesOptionsOfTheOptimizerAsTheyAreWritten) {
  TrainConfig config;
  read_config(config, write_toml("[optimizer]\noptimizer = 'came'\nbeta3 = 0.999\nbias_correction = true\nseed = 7\n"));
  EXPECT_EQ(config.options,
            (std::map<std::string, std::string>{{"beta3", "0.999"}, {"bias_correction", "true"}, {"seed", "7"}}));
}

TEST(LabConfig, RefusesWhatItDoesNotKnow) {
  EXPECT_TRUE(error_of("[train]\nsteps = 5\nstep = 5\n").starts_with(":3: [train] has no key step;"))
      << error_of("[train]\nsteps = 5\nstep = 5\n");
  EXPECT_TRUE(error_of("[trian]\nsteps = 5\n").starts_with(":1: no section [trian]"))
      << error_of("[trian]\nsteps = 5\n");
  EXPECT_TRUE(error_of("steps = 5\n").starts_with(":1: no section [steps]")) << error_of("steps = 5\n");
  EXPECT_EQ(error_of("[train]\nsteps = 'many'\n"), ":2: steps must be a whole number");
  EXPECT_EQ(error_of("[train]\nsteps = 5.5\n"), ":2: steps must be a whole number");
  EXPECT_EQ(error_of("[train]\nseed = -1\n"), ":2: seed must be a whole number, not negative");
  EXPECT_EQ(error_of("[model]\nnext_sentence = 1\n"), ":2: next_sentence must be true or false");
  EXPECT_TRUE(error_of("[train\n").starts_with(":1:")) << error_of("[train\n");
  EXPECT_EQ(error_of("[|train]\n"), ": not valid TOML");
  EXPECT_EQ(error_of("[train]\nsteps = tru\n").find('\n'), std::string::npos);
}

TEST(LabConfig, ShowsKeysThatNeedQuotesOnOneLine) {
  const auto expect_start = [](const char* text, const std::string& start) {
    EXPECT_EQ(error_of(text).substr(0, start.size()), start);
  };
  expect_start("[train]\n\"a\\nb\" = 1\n", ":2: [train] has no key \"a\\nb\";");
  expect_start("[\"a\\nb\"]\nc = 1\n", ":1: no section [\"a\\nb\"];");
  // No optimizer has such an option, and config.toml would not read back.
  expect_start("[optimizer]\n\"a b\" = 1\n", ":2: [optimizer] has no key \"a b\";");
  expect_start("[optimizer]\n\"\" = 1\n", ":2: [optimizer] has no key \"\";");
  EXPECT_LT(error_of("[train]\n" + std::string(5000, 'a') + " = 1\n").size(), 400U);
}

TEST(LabConfig, RefusesWhatMakesNoSense) {
  EXPECT_EQ(error_of("[train]\nbatch = 30\nmicro_batch = 8\n"),
            "batch is 30, which micro_batch 8 does not divide; take a micro_batch that does");
  EXPECT_EQ(error_of("[train]\nbatch = 65536\n"), "batch is 65536, but must be from 1 to 32768");
  EXPECT_EQ(error_of("[train]\nschedule = 'step'\n"), "schedule is step, but must be constant, linear or cosine");
  EXPECT_EQ(error_of("[train]\nprecision = 'f16'\n"), "precision is f16, but must be f32 or bf16");
  EXPECT_EQ(error_of("[optimizer]\noptimizer = 'adamx'\n"),
            fmt::format("no optimizer adamx; there are {}", fmt::join(optimizer_names(), ", ")));
}

TEST(LabConfig, EveryNumberHasARange) {
  int numbers = 0;
  TrainConfig plain;
  for_each_field(plain, [&](const char*, const char* tested, auto& field, const char*) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_arithmetic_v<Field> && !std::is_same_v<Field, bool>) {
      using Limits = std::numeric_limits<Field>;
      std::vector<Field> wrong = {Limits::max()};
      if (std::is_signed_v<Field>) wrong.insert(wrong.end(), {Limits::lowest(), Field(-1)});
      if (Limits::has_infinity) {
        wrong.insert(wrong.end(),
                     {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::denorm_min()});
      }
      for (const Field value : wrong) {
        TrainConfig config;
        for_each_field(config, [&](const char*, const char* key, auto& other, const char*) {
          if constexpr (std::is_same_v<std::decay_t<decltype(other)>, Field>) {
            if (std::string_view(key) == tested) other = value;
          }
        });
        try {
          resolve_config(config);
          ADD_FAILURE() << tested << " may be " << value;
        } catch (const Error& error) {
          EXPECT_TRUE(std::string(error.what()).starts_with(tested + std::string(" is "))) << error.what();
        }
      }
      ++numbers;
    }
  });
  EXPECT_EQ(numbers, 20);
}

TEST(LabConfig, GivesBackEveryCharacter) {
  TrainConfig config;
  for (int code = 1; code < 128; ++code) config.data += static_cast<char>(code);
  config.data += "\u00e9\u0085\u2028\U0001f600";
  config.options = {{"note", config.data}};
  TrainConfig read;
  read_config(read, write_toml(config_text(config)));
  EXPECT_EQ(read.data, config.data);
  EXPECT_EQ(read.options, config.options);
}

TEST(LabConfig, GivesBackTextsThatHoldTheEndOfEveryKindOfText) {
  for (const std::string data : {"a'''\nb", "a\"\"\"\nb", "'''\"\"\"", "\n", "a\\", "a\"", ""}) {
    TrainConfig config;
    config.data = data;
    TrainConfig read;
    read_config(read, write_toml(config_text(config)));
    EXPECT_EQ(read.data, config.data);
  }
}

TEST(LabConfig, RefusesSequencesLongerThanTheModel) {
  TrainConfig config;
  config.model = "bert-tiny";
  config.length = 513;
  EXPECT_THROW((void)config.model_config(1000), Error);
  config.length = 512;
  EXPECT_EQ(config.model_config(1000).vocabulary, 1000);
  config.vocabulary = 999;
  EXPECT_THROW((void)config.model_config(1000), Error);
}

TEST(LabSchedule, RisesThenFallsToItsShare) {
  TrainConfig config;
  config.steps = 110;
  config.warmup = 10;
  config.final_rate = 0.1;
  for (const char* schedule : {"linear", "cosine", "constant"}) {
    config.schedule = schedule;
    EXPECT_DOUBLE_EQ(rate_factor(config, 1), 0.1);
    EXPECT_DOUBLE_EQ(rate_factor(config, 10), 1);
  }
  EXPECT_DOUBLE_EQ(rate_factor(config, 110), 1);
  config.schedule = "linear";
  EXPECT_DOUBLE_EQ(rate_factor(config, 60), 0.55);
  EXPECT_DOUBLE_EQ(rate_factor(config, 110), 0.1);
  config.schedule = "cosine";
  EXPECT_DOUBLE_EQ(rate_factor(config, 60), 0.55);
  EXPECT_DOUBLE_EQ(rate_factor(config, 35), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(rate_factor(config, 110), 0.1);
}

}  // namespace
}  // namespace lab
