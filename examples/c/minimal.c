/*
 * CAME in C on memory the program owns: find W (inputs x outputs) with X W = X T by least squares.
 * A plan says what state, workspace and reduction buffer a step needs; the program allocates them and passes pointers.
 * optimizer.c beside this file does the same with an optimizer that owns its memory.
 */
#include <stdio.h>
#include <stdlib.h>

#include "came/came.h"

enum { kSamples = 64, kInputs = 12, kOutputs = 5, kSteps = 300 };
static float x[kSamples][kInputs], target[kInputs][kOutputs], w[kInputs][kOutputs], grad[kInputs][kOutputs];

static void check(came_status status) {
  if (status == CAME_STATUS_OK) return;
  fprintf(stderr, "minimal: %s: %s\n", came_status_name(status), came_error_message());
  exit(EXIT_FAILURE);
}

/* Zeroed memory: what state must start as.  Sizes may be 0, for which calloc may answer NULL. */
static void* allocate(int64_t bytes) {
  void* memory = calloc((size_t)bytes + 1, 1);
  if (memory == NULL) exit(EXIT_FAILURE);
  return memory;
}

static void fill_randomly(float* values, int count) {
  for (int k = 0; k < count; ++k) values[k] = (float)rand() / (float)RAND_MAX - 0.5f;
}

/* Returns |X (W - T)|^2 / (2 samples) and leaves its gradient in `grad`. */
static double loss_and_gradient(void) {
  double loss = 0;
  for (int k = 0; k < kInputs * kOutputs; ++k) grad[k / kOutputs][k % kOutputs] = 0;
  for (int s = 0; s < kSamples; ++s) {
    for (int j = 0; j < kOutputs; ++j) {
      float error = 0;
      for (int i = 0; i < kInputs; ++i) error += x[s][i] * (w[i][j] - target[i][j]);
      for (int i = 0; i < kInputs; ++i) grad[i][j] += x[s][i] * error / kSamples;
      loss += 0.5 * error * error / kSamples;
    }
  }
  return loss;
}

int main(void) {
  const int64_t shape[2] = {kInputs, kOutputs};
  came_options options = CAME_OPTIONS_INIT;
  check(came_options_init(&options, CAME_ALGORITHM_CAME));
  options.lr = 0.01;

  came_tensor_spec spec = CAME_TENSOR_SPEC_INIT;
  spec.name = "w";
  spec.shape = shape;
  spec.ndim = 2;
  came_plan* plan = NULL;
  check(came_plan_create(&options, 1, &spec, 1, CAME_BACKEND_AUTO, 0, &plan));

  came_step step = CAME_STEP_INIT;
  check(came_plan_state_count(plan, &step.state_count));
  came_tensor* states = allocate(step.state_count * (int64_t)sizeof *states);
  for (int64_t k = 0; k < step.state_count; ++k) {
    came_state_info info = CAME_STATE_INFO_INIT;
    check(came_plan_state(plan, k, &info));
    states[k] = came_tensor_make(allocate(info.bytes), info.dtype, info.shape, info.ndim);
  }

  int64_t steps_done = 0;
  const came_tensor counter = came_tensor_make(&steps_done, CAME_DTYPE_I64, NULL, 0);
  const came_tensor parameter = came_tensor_make(w, CAME_DTYPE_F32, shape, 2),
                    gradient = came_tensor_make(grad, CAME_DTYPE_F32, shape, 2);
  came_memory memory = CAME_MEMORY_INIT;
  check(came_plan_memory(plan, &memory));
  step.tensor_count = 1;
  step.params = &parameter;
  step.grads = &gradient;
  step.states = states;
  step.step = &counter;
  step.workspace = allocate(step.workspace_bytes = memory.workspace_bytes);
  step.reductions = allocate(step.reduction_bytes = memory.reduction_bytes);

  fill_randomly(&x[0][0], kSamples * kInputs);
  fill_randomly(&target[0][0], kInputs * kOutputs);
  const double first = loss_and_gradient();
  double last = first;
  while (steps_done < kSteps) { /* came_plan_step raises it */
    check(came_plan_step(plan, &step));
    last = loss_and_gradient();
  }
  printf("loss %.2e -> %.2e in %d steps; %d bytes of state for %d parameters\n", first, last, kSteps,
         (int)memory.state_bytes, kInputs * kOutputs);

  for (int64_t k = 0; k < step.state_count; ++k) free(states[k].data);
  free(states);
  free(step.workspace);
  free(step.reductions);
  came_plan_destroy(plan);
  return last < first / 100 ? EXIT_SUCCESS : EXIT_FAILURE;
}
