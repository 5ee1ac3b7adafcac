/*
 * CAME in C with an optimizer that owns its state: pull a 4x3 matrix towards a target, loss = |W - T|^2 / 2.
 * minimal.c beside this file does a step on memory that the program owns.
 */
#include <stdio.h>
#include <stdlib.h>

#include "came/came.h"

enum { kRows = 4, kCols = 3, kCount = kRows * kCols };

static void check(came_status status) {
  if (status == CAME_STATUS_OK) return;
  fprintf(stderr, "optimizer: %s: %s\n", came_status_name(status), came_error_message());
  exit(EXIT_FAILURE);
}

int main(void) {
  const int64_t shape[2] = {kRows, kCols};
  float w[kCount] = {0}, grad[kCount] = {0};

  came_options options = CAME_OPTIONS_INIT;
  check(came_options_init(&options, CAME_ALGORITHM_CAME));

  came_parameter parameter = CAME_PARAMETER_INIT;
  parameter.name = "w";
  parameter.param.data = w;
  parameter.grad.data = grad;
  parameter.param.shape = parameter.grad.shape = shape;
  parameter.param.ndim = parameter.grad.ndim = 2;
  came_optimizer* optimizer = NULL;
  check(came_optimizer_create(&options, 1, &parameter, 1, CAME_BACKEND_AUTO, &optimizer));

  double first = 0, loss = 0;
  for (int step = 0; step <= 200; ++step) {
    loss = 0;
    for (int k = 0; k < kCount; ++k) {
      grad[k] = w[k] - (float)k / kCount; /* The target is 0, 1/12, 2/12, ... */
      loss += 0.5 * grad[k] * grad[k];
    }
    if (step == 0) first = loss;
    check(came_optimizer_set_lr(optimizer, 0, 0.02 * (1 - step / 201.0)));
    check(came_optimizer_step(optimizer, NULL, NULL));
  }
  printf("loss %.2e -> %.2e\n", first, loss);
  came_optimizer_destroy(optimizer);
  return loss < first / 100 ? EXIT_SUCCESS : EXIT_FAILURE;
}
