// Ranks of a test: each has a plan and memory of its own, and the test reduces between phases as all-reduces would.
#pragma once

#include <memory>

#include "support.hpp"

namespace came::test {

using Sizes = std::vector<int64_t>;
using Ranks = std::vector<std::unique_ptr<Trial>>;

/// Cuts dimension d of a shape at these points: ranks of uneven and empty parts.
inline std::vector<Shard> cut(const Sizes& shape, size_t d, const Sizes& points) {
  std::vector<Shard> ranks;
  int64_t begin = 0;
  for (const int64_t end : points) {
    Shard shard{uint64_t{1} << d, Sizes(shape.size(), 0), shape};
    shard.offset[d] = begin;
    shard.extent[d] = end - begin;
    ranks.push_back(shard);
    begin = end;
  }
  return ranks;
}

/// Cuts every part again along another dimension.
inline std::vector<Shard> cut_again(const std::vector<Shard>& ranks, size_t d, const Sizes& points) {
  std::vector<Shard> finer;
  for (const Shard& rank : ranks) {
    int64_t begin = 0;
    for (const int64_t end : points) {
      Shard shard = rank;
      shard.split_dims |= uint64_t{1} << d;
      shard.offset[d] = begin;
      shard.extent[d] = end - begin;
      finer.push_back(shard);
      begin = end;
    }
  }
  return finer;
}

/// All-reduces over these ranks what a reduce group shares after a phase.
inline void all_reduce(const std::vector<Trial*>& ranks, int phase, size_t group) {
  const auto run_of = [&](const Trial& rank) -> core::SharedRun {
    const std::vector<core::SharedRun>& shared = rank.plan.phases[static_cast<size_t>(phase)].shared;
    return group < shared.size() ? shared[group] : core::SharedRun{};
  };
  const auto at = [&](Trial& rank, int64_t k) -> double& {
    return static_cast<double*>(rank.reductions.data())[run_of(rank).begin + k];
  };
  const came_reduce_op op = ranks[0]->plan.phases[static_cast<size_t>(phase)].op;
  for (Trial* rank : ranks) ASSERT_EQ(run_of(*rank).count, run_of(*ranks[0]).count) << "phase " << phase;
  for (int64_t k = 0; k < run_of(*ranks[0]).count; ++k) {
    double value = at(*ranks[0], k);
    for (size_t r = 1; r < ranks.size(); ++r) {
      const double other = at(*ranks[r], k);
      value = op == CAME_REDUCE_SUM ? value + other : std::max(value, other);
    }
    for (Trial* rank : ranks) at(*rank, k) = value;
  }
}

/// Sets of ranks that are one reduce group each, by the group's number.
using Groups = std::vector<std::vector<std::vector<size_t>>>;

/// All ranks are group 0; those that hold parts of the same matrices of a batch are group 1.
inline Groups groups_of(const std::vector<Shard>& shards) {
  std::vector<size_t> all(shards.size());
  std::vector<std::vector<size_t>> sets;
  for (size_t k = 0; k < shards.size(); ++k) {
    all[k] = k;
    const auto shares = [&](const std::vector<size_t>& set) {
      const Shard& other = shards[set[0]];
      return other.offset[0] == shards[k].offset[0] && other.extent[0] == shards[k].extent[0];
    };
    const auto found = std::find_if(sets.begin(), sets.end(), shares);
    if (found == sets.end()) {
      sets.push_back({k});
    } else {
      found->push_back(k);
    }
  }
  return {{all}, sets};
}

/// All phases of a step, reduced within every set.
inline void step_ranks(Ranks& ranks, const Groups& groups) {
  for (int phase = 0; phase < static_cast<int>(ranks[0]->plan.phases.size()); ++phase) {
    for (auto& rank : ranks) rank->run_phase(phase);
    for (size_t group = 0; group < groups.size(); ++group) {
      for (const std::vector<size_t>& set : groups[group]) {
        std::vector<Trial*> members;
        for (const size_t k : set) members.push_back(ranks[k].get());
        all_reduce(members, phase, group);
      }
    }
  }
}

/// A step of ranks that share one reduce group.
inline void step_ranks(Ranks& ranks) {
  std::vector<size_t> all;
  for (size_t k = 0; k < ranks.size(); ++k) all.push_back(k);
  step_ranks(ranks, {{all}});
}

/// Where element `local` of a statistic lies in the whole one: both are batches of vectors.
inline int64_t whole_index(const core::State& state, int64_t local) {
  int64_t index = 0;
  int64_t stride = 1;
  for (size_t d = state.shape.size(); d-- > 0;) {
    index += (state.offset[d] + local % state.shape[d]) * stride;
    local /= state.shape[d];
    stride *= state.whole[d];
  }
  return index;
}

}  // namespace came::test
