// came-lab: trains BERT, GPT-2 and T5 with the optimizers of came and compares them.
//
// Leaves with 0; 1 and one line for an error that the user can correct; 2 for a command line that makes no sense; 128 +
// the signal's number when stopped by one.
#include <fmt/format.h>

#include <came/error.hpp>
#include <exception>

#include "commands/commands.hpp"
#include "commands/exit.hpp"
#include "error.hpp"
#include "say.hpp"

namespace {

// libtorch's messages go on for a screen: where it was thrown is for developers.
std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("Trains BERT, GPT-2 and T5 on your text with CAME and other optimizers, and compares them.");
  program.footer(
      "A first tour:\n"
      "  came-lab data runs/data                               # prepare the default corpus\n"
      "  came-lab train gpt2-tiny --optimizer came --steps 300 # train on it\n"
      "  came-lab generate runs/gpt2-tiny-came --prompt \"The function\"\n");
  program.name("came-lab");
  program.require_subcommand(1);
  program.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("came-lab: {}; came-lab --help and came-lab COMMAND --help say more\n", error.what());
  });
  program.set_help_all_flag("--help-all", "Help for all subcommands");
  lab::add_data(program);
  lab::add_train(program);
  lab::add_eval(program);
  lab::add_generate(program);
  lab::add_export(program);
  lab::add_compare(program);
  try {
    program.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  } catch (const lab::Exit& leave) {
    return leave.status;
  } catch (const lab::Error& error) {
    lab::say(fmt::format("came-lab: {}\n", error.what()));
  } catch (const came::Error& error) {
    lab::say(fmt::format("came-lab: {}\n", error.what()));
  } catch (const std::bad_alloc&) {
    lab::say("came-lab: out of memory; take a smaller --micro-batch or model\n");
  } catch (const std::exception& error) {
    const std::string message = first_line(error.what());
    const bool memory =
        message.find("allocate memory") != std::string::npos || message.find("out of memory") != std::string::npos;
    lab::say(fmt::format("came-lab: {}{}\n", message, memory ? "; take a smaller --micro-batch or model" : ""));
  }
  return 1;
}
