/*
 * Uses an installed library from C: one step of Adam, whose first step is lr * sign(gradient) but for eps.
 */
#include <came/came.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const int64_t shape[1] = {2};
  double w[2] = {1.0, -1.0}, grad[2] = {3.0, -0.5};
  came_options options = CAME_OPTIONS_INIT;
  came_parameter parameter = CAME_PARAMETER_INIT;
  came_optimizer* optimizer = NULL;
  came_status status = came_options_init(&options, CAME_ALGORITHM_ADAM);
  double error;

  options.lr = 0.25;
  parameter.name = "w";
  parameter.param.data = w;
  parameter.grad.data = grad;
  parameter.param.dtype = parameter.grad.dtype = CAME_DTYPE_F64;
  parameter.param.shape = parameter.grad.shape = shape;
  parameter.param.ndim = parameter.grad.ndim = 1;
  if (status == CAME_STATUS_OK) {
    status = came_optimizer_create(&options, 1, &parameter, 1, CAME_BACKEND_AUTO, &optimizer);
  }
  if (status == CAME_STATUS_OK) status = came_optimizer_step(optimizer, NULL, NULL);
  came_optimizer_destroy(optimizer);
  if (status != CAME_STATUS_OK) {
    fprintf(stderr, "consumer: %s: %s\n", came_status_name(status), came_error_message());
    return 1;
  }
  if (strcmp(came_version(), CAME_VERSION_STRING) != 0 || came_abi_version() != CAME_ABI_VERSION) {
    fprintf(stderr, "consumer: header %s, library %s\n", CAME_VERSION_STRING, came_version());
    return 1;
  }
  /* eps / |gradient| = 2e-8 is the larger of the two relative deviations from lr. */
  error = (w[0] - 0.75) * (w[0] - 0.75) + (w[1] + 0.75) * (w[1] + 0.75);
  printf("consumer: w = %.9f, %.9f\n", w[0], w[1]);
  return error < 1e-16 ? 0 : 1;
}
