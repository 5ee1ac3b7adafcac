/*
 * The C interface of libcame: memory-efficient optimizers on raw memory.  C99, no dependencies.
 * Length: one ABI, one header.
 *
 * A step is a list of phases over caller-owned tensors; between two phases lies one reduction.
 *
 *   came_options_init    defaults of an optimizer             came_plan_create     shapes -> plan
 *   came_plan_state      what state to allocate (zeroed)      came_plan_memory     how many bytes
 *   came_plan_step       one optimizer step                   came_plan_run_phase  one phase of it
 *   came_optimizer_*     the same with owned state, for programs without a framework
 *
 * Every function that can fail returns a came_status; came_error_message() then says, for the calling thread,
 * which argument was wrong, what was given and what was expected.  A failed call has written nothing.
 * Every struct begins with struct_size: set it to sizeof the struct (the CAME_*_INIT macros do).  The library refuses
 * any other size than its own; `reserved` fields are zero.
 * A plan is immutable: any number of threads may use one at the same time.  An optimizer has one user at a time.
 */
#ifndef CAME_CAME_H
#define CAME_CAME_H

#include <stdint.h>

#include "came/version.h"

/** Marks what the shared library exports. */
#define CAME_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ------------------------------------------------------------------------------------------- */

/** Outcome of a call; the constants below. */
typedef int32_t came_status;
enum {
  CAME_STATUS_OK = 0,               /**< Done. */
  CAME_STATUS_INVALID_ARGUMENT = 1, /**< An argument, option or tensor is not what was expected. */
  CAME_STATUS_UNSUPPORTED = 2,      /**< Sound, but this build or backend cannot do it. */
  CAME_STATUS_ABI_MISMATCH = 3,     /**< A struct_size this library does not know. */
  CAME_STATUS_OUT_OF_MEMORY = 4,    /**< The host ran out of memory. */
  CAME_STATUS_INTERNAL = 5,         /**< A defect of the library; please report it. */
  CAME_STATUS_DEVICE = 6            /**< The device or its driver refused; the message has its words. */
};

/** Message of this thread's last failed call; "" if none failed.  Valid until the thread's next failed call. */
CAME_API const char* came_error_message(void);
/** Name of a status, such as "invalid argument". */
CAME_API const char* came_status_name(came_status status);
/** CAME_ABI_VERSION of the library that is loaded. */
CAME_API int32_t came_abi_version(void);
/** Version of the library that is loaded, such as "0.1.0". */
CAME_API const char* came_version(void);

/* ---- Options ------------------------------------------------------------------------------------------ */

/** Which optimizer; the constants below. */
typedef int32_t came_algorithm;
enum {
  CAME_ALGORITHM_CAME = 0,      /**< CAME, Luo et al. 2023. */
  CAME_ALGORITHM_ADAFACTOR = 1, /**< Adafactor with momentum (Algorithm 1 of the CAME paper) or the original's. */
  CAME_ALGORITHM_ADAM = 2,      /**< Adam; weight decay is added to the gradient. */
  CAME_ALGORITHM_ADAMW = 3,     /**< Adam with decoupled weight decay. */
  CAME_ALGORITHM_LAMB = 4,      /**< LAMB, You et al. 2020. */
  CAME_ALGORITHM_SM3 = 5        /**< SM3-II, Anil et al. 2019. */
};

/** Element type of a tensor; the constants below. */
typedef int32_t came_dtype;
enum {
  CAME_DTYPE_DEFAULT = 0, /**< In options: f64 beside f64 parameters, f32 beside all others. */
  CAME_DTYPE_F64 = 1,     /**< IEEE binary64. */
  CAME_DTYPE_F32 = 2,     /**< IEEE binary32. */
  CAME_DTYPE_BF16 = 3,    /**< bfloat16: the upper half of binary32. */
  CAME_DTYPE_F16 = 4,     /**< IEEE binary16. */
  CAME_DTYPE_I64 = 5,     /**< Signed 64-bit integer; step counters only. */
  CAME_DTYPE_I8 = 6,      /**< Signed 8-bit codes of a momentum; in options: 8-bit codes, for matrices. */
  CAME_DTYPE_U8 = 7,      /**< Bytes: two 4-bit codes of a momentum each, or one 8-bit code of a second moment. */
  CAME_DTYPE_I4 = 8       /**< In options: a momentum of 4-bit codes, for matrices, stored as U8. */
};

/** How a tensor of three or more dimensions is seen as matrices; the constants below. */
typedef int32_t came_view;
enum {
  CAME_VIEW_AUTO = 0,    /**< Of the two below, the one with fewer state elements. */
  CAME_VIEW_FOLD = 1,    /**< One matrix [dim0, all the rest]. */
  CAME_VIEW_LAST_TWO = 2 /**< A batch of matrices over the last two dimensions (the authors' package). */
};

/**
 * Options of one parameter group.  Start from CAME_OPTIONS_INIT and came_options_init, then change fields.  An option
 * the optimizer does not have must keep the value came_options_init gave it.  docs/algorithms.md says what each does.
 */
typedef struct came_options {
  uint32_t struct_size;           /**< sizeof(came_options). */
  came_algorithm algorithm;       /**< The optimizer; the same in every group of a plan. */
  double lr;                      /**< Learning rate, >= 0; a step may bring another. */
  double beta1;                   /**< Decay of the momentum, [0, 1); CAME: > 0; Adafactor, SM3: 0 keeps no momentum. */
  double beta2;                   /**< Decay of the second moment, [0, 1). */
  double beta3;                   /**< CAME: decay of the instability, [0, 1). */
  double eps;                     /**< Adam, AdamW (>= 0), LAMB (> 0): added to the root; SM3 (> 0): under the root. */
  double eps1;                    /**< CAME, Adafactor: added to the squared gradient, > 0. */
  double eps2;                    /**< CAME: added to the instability, > 0.  Adafactor: least parameter scale, >= 0. */
  double clip_threshold;          /**< CAME, Adafactor: d, the largest RMS of an update, > 0. */
  double weight_decay;            /**< Decoupled decay (Adam: L2 term), >= 0. */
  double max_grad_norm;           /**< Clip this group's gradients by the norm over the whole plan; 0: off. */
  double beta2_decay;             /**< Adafactor: beta2 = 1 - step^beta2_decay (such as -0.8); 0: constant beta2. */
  uint64_t seed;                  /**< Key of stochastic rounding. */
  came_view view;                 /**< CAME, Adafactor, SM3: how N-D tensors become matrices. */
  came_dtype momentum_dtype;      /**< Storage of the momentum: default, F64 beside F64, F32, BF16, I8 or I4. */
  came_dtype second_moment_dtype; /**< Adam, AdamW, LAMB: storage of the second moment: default or I8. */
  int32_t bias_correction;        /**< CAME: correct the instability's cold start (1); 0: the paper's Algorithm 2
                                       exactly.  LAMB: correct both moments (1). */
  int32_t confidence_1d;          /**< CAME: confidence factor also for 1-D and 0-D tensors. */
  int32_t cautious;               /**< Drop update elements whose sign disagrees with the gradient's. */
  int32_t stochastic_rounding;    /**< Round bf16/f16 parameters and bf16 momentum stochastically. */
  int32_t maximize;               /**< Ascend instead of descend. */
  int32_t relative_step;          /**< Adafactor: min(1e-2, 1/sqrt(step)) instead of lr. */
  int32_t warmup_init;            /**< Adafactor, with relative_step: 1e-6 * step instead of 1e-2. */
  int32_t scale_parameter;        /**< Adafactor: multiply the rate by max(eps2, RMS(parameter)). */
  int32_t lr_in_momentum;         /**< Adafactor: momentum of rate*update as in the original, not of the update. */
} came_options;

/** Initial value of a came_options, for came_options_init to fill. */
#define CAME_OPTIONS_INIT \
  { sizeof(came_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Fills *options, whose struct_size is set, with the defaults of `algorithm`. */
CAME_API came_status came_options_init(came_options* options, came_algorithm algorithm);
/** Checks every option's range, and that none is set which the optimizer does not have. */
CAME_API came_status came_options_validate(const came_options* options);
/**
 * Sets an option by its field name from text; ranges are checked by came_options_validate and when a plan is made.
 * Flags: true, false.  view: auto, fold, last_two.  momentum_dtype: default, f64, f32, bf16, int8, int4.
 * second_moment_dtype: default, int8.
 */
CAME_API came_status came_options_set(came_options* options, const char* name, const char* value);
/** Finds an optimizer by its one word: "came", "adafactor", "adam", "adamw", "lamb", "sm3". */
CAME_API came_status came_algorithm_find(const char* name, came_algorithm* algorithm);
/** The one word of an optimizer; NULL for a number that is none. */
CAME_API const char* came_algorithm_name(came_algorithm algorithm);

/* ---- Tensors ------------------------------------------------------------------------------------------ */

/** Where memory lies; the constants below. */
typedef int32_t came_device;
enum {
  CAME_DEVICE_CPU = 0, /**< Host memory. */
  CAME_DEVICE_CUDA = 1 /**< Memory of a CUDA device. */
};

/** A dense, row-major tensor in caller-owned memory. */
typedef struct came_tensor {
  uint32_t struct_size; /**< sizeof(came_tensor). */
  came_dtype dtype;     /**< Element type. */
  void* data;           /**< First element, aligned to the element size; may be NULL if there are no elements. */
  const int64_t* shape; /**< ndim sizes; may be NULL if ndim is 0. */
  int32_t ndim;         /**< Number of dimensions. */
  came_device device;   /**< Kind of memory. */
  int32_t device_index; /**< Which device of that kind; 0 on the host. */
  int32_t reserved;     /**< Zero. */
} came_tensor;

/** Initial value of a came_tensor. */
#define CAME_TENSOR_INIT \
  { sizeof(came_tensor), CAME_DTYPE_F32, 0, 0, 0, CAME_DEVICE_CPU, 0, 0 }

/** A tensor in host memory; shape is not copied. */
static inline came_tensor came_tensor_make(void* data, came_dtype dtype, const int64_t* shape, int32_t ndim) {
  came_tensor tensor = CAME_TENSOR_INIT;
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.ndim = ndim;
  return tensor;
}

/** What a plan knows of one parameter. */
typedef struct came_tensor_spec {
  uint32_t struct_size;        /**< sizeof(came_tensor_spec). */
  int32_t group;               /**< Index of its options. */
  const char* name;            /**< For messages and exported state; may be NULL. */
  const int64_t* shape;        /**< ndim sizes of the whole tensor, over all ranks. */
  int32_t ndim;                /**< Number of dimensions. */
  came_dtype dtype;            /**< Element type of the parameter. */
  came_dtype grad_dtype;       /**< Element type of the gradient; default: the parameter's. */
  int32_t reduce_group;        /**< Sharded: which set of ranks holds the parts, numbered from 0 by the caller. */
  uint64_t id;                 /**< Key of stochastic rounding, which needs each parameter's own. */
  uint64_t split_dims;         /**< Bit d: dimension d is split over ranks, the same on every rank; 0: not sharded. */
  const int64_t* shard_offset; /**< Sharded: first index this rank holds, per dimension. */
  const int64_t* shard_extent; /**< Sharded: how many it holds, per dimension; may be 0. */
  /** Split in the batch and in rows or columns: which set of ranks holds parts of the same matrices; another number
   * than reduce_group, the set of all ranks that hold the tensor.  Otherwise not read. */
  int32_t matrix_group;
  int32_t reserved; /**< Zero. */
} came_tensor_spec;

/** Initial value of a came_tensor_spec. */
#define CAME_TENSOR_SPEC_INIT \
  { sizeof(came_tensor_spec), 0, 0, 0, 0, CAME_DTYPE_F32, CAME_DTYPE_DEFAULT, 0, 0, 0, 0, 0, 0, 0 }

/* ---- Plans -------------------------------------------------------------------------------------------- */

/** What runs the phases; the constants below. */
typedef int32_t came_backend;
enum {
  CAME_BACKEND_AUTO = 0,      /**< The best one for host memory in this build. */
  CAME_BACKEND_REFERENCE = 1, /**< f64 arithmetic, one thread, straight from the equations. */
  CAME_BACKEND_CUDA = 2,      /**< CUDA devices; refused as unsupported by builds without it. */
  CAME_BACKEND_CPU = 3        /**< SIMD and OpenMP; refused as unsupported by builds without it. */
};

/** A plan: what a step over a list of tensors does, built once from shapes, dtypes and options. */
typedef struct came_plan came_plan;

/** One state tensor that the caller allocates, filled with zero bytes. */
typedef struct came_state_info {
  uint32_t struct_size;       /**< sizeof(came_state_info). */
  came_dtype dtype;           /**< Element type. */
  const char* name;           /**< Such as "exp_avg_sq_row"; owned by the plan. */
  const int64_t* shape;       /**< ndim sizes of what this rank holds; owned by the plan. */
  int32_t ndim;               /**< Number of dimensions. */
  int32_t reserved;           /**< Zero. */
  int64_t tensor;             /**< Index of the parameter it belongs to. */
  int64_t bytes;              /**< Size. */
  const int64_t* whole_shape; /**< ndim sizes over all ranks: for checkpoints of sharded state. */
  const int64_t* offset;      /**< Where this rank's part begins in it, per dimension. */
  /** Per dimension of the parameter: the dimension of this state that holds it, or -1: averaged over.  Owned by the
   * plan. */
  const int32_t* dims;
} came_state_info;

/** Initial value of a came_state_info. */
#define CAME_STATE_INFO_INIT \
  { sizeof(came_state_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** How a parameter is seen: a batch of matrices. */
typedef struct came_matrix_view {
  uint32_t struct_size; /**< sizeof(came_matrix_view). */
  int32_t factored;     /**< 1: row and column statistics; 0: one statistic per element. */
  int64_t batch;        /**< Number of matrices in the whole tensor. */
  int64_t rows;         /**< Rows of each. */
  int64_t cols;         /**< Columns of each. */
} came_matrix_view;

/** Initial value of a came_matrix_view. */
#define CAME_MATRIX_VIEW_INIT \
  { sizeof(came_matrix_view), 0, 0, 0, 0 }

/** How ranks combine a reduction; the constants below. */
typedef int32_t came_reduce_op;
enum {
  CAME_REDUCE_SUM = 0, /**< Add. */
  CAME_REDUCE_MAX = 1  /**< Keep the largest. */
};

/** What lies between a phase and the next: `count` doubles that the ranks of a sharded plan all-reduce. */
typedef struct came_reduction {
  uint32_t struct_size; /**< sizeof(came_reduction). */
  came_reduce_op op;    /**< How to combine. */
  const char* phase;    /**< Name of the phase, such as "statistics". */
  int64_t offset;       /**< First double, counted from came_step.reductions. */
  int64_t count;        /**< Number of doubles; 0: nothing to all-reduce. */
  int64_t presence; /**< How many doubles at its front are presence: came_plan_reduction; 0 after the first phase. */
} came_reduction;

/** Initial value of a came_reduction. */
#define CAME_REDUCTION_INIT \
  { sizeof(came_reduction), 0, 0, 0, 0, 0 }

/** Bytes of memory of a plan. */
typedef struct came_memory {
  uint32_t struct_size;    /**< sizeof(came_memory). */
  int32_t reserved;        /**< Zero. */
  int64_t parameter_bytes; /**< Parameters this rank holds. */
  int64_t gradient_bytes;  /**< Their gradients. */
  int64_t state_bytes;     /**< Optimizer state. */
  int64_t workspace_bytes; /**< Scratch that a step needs. */
  int64_t reduction_bytes; /**< Reduction buffer that a step needs. */
  int64_t table_bytes;     /**< Memory of its device that the plan itself holds; 0 on the host. */
  int64_t peak_bytes;      /**< State, workspace, reductions and tables: all the optimizer holds during a step. */
} came_memory;

/** Initial value of a came_memory. */
#define CAME_MEMORY_INIT \
  { sizeof(came_memory), 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * What one step reads and writes.  Tensors come in the plan's order, on the plan's device, and must not overlap, which
 * is not checked.  Scalars have no dimensions or one, and lie on the host or the plan's device, so that a captured
 * graph can follow them.
 */
typedef struct came_step {
  uint32_t struct_size;          /**< sizeof(came_step). */
  int32_t reserved;              /**< Zero. */
  int64_t tensor_count;          /**< Length of params and of grads. */
  const came_tensor* params;     /**< Read and written. */
  const came_tensor* grads;      /**< Read only. */
  int64_t state_count;           /**< Length of states. */
  const came_tensor* states;     /**< In the order of came_plan_state; read and written. */
  const came_tensor* step;       /**< Steps done so far, I64, F32 or F64: one, or one per tensor; raised at the end. */
  const uint8_t* active;         /**< Per tensor: 0 leaves it untouched by this step; NULL: all are active. */
  const came_tensor* lr;         /**< One per group, F32 or F64; NULL: the lr of the options. */
  const came_tensor* grad_scale; /**< F32 or F64; gradients are divided by it; NULL: 1. */
  const came_tensor* found_inf;  /**< F32 or F64; not 0: the step leaves every byte unchanged; NULL: 0. */
  void* workspace;               /**< Scratch, aligned to 8; keep its contents from the first phase to the last. */
  int64_t workspace_bytes;       /**< At least came_memory.workspace_bytes. */
  void* reductions;              /**< Reduction buffer of doubles, aligned to 8; keep its contents likewise. */
  int64_t reduction_bytes;       /**< At least came_memory.reduction_bytes. */
  void* stream;                  /**< CUDA stream; NULL on the host. */
  const came_options* options;   /**< One per group, for this step; NULL: the plan's.  See came_plan_check_options. */
} came_step;

/** Initial value of a came_step. */
#define CAME_STEP_INIT \
  { sizeof(came_step), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Builds a plan for `tensor_count` parameters in `group_count` groups, on device `device_index` of the backend. */
CAME_API came_status came_plan_create(const came_options* groups, int32_t group_count, const came_tensor_spec* tensors,
                                      int64_t tensor_count, came_backend backend, int32_t device_index,
                                      came_plan** plan);
/** Frees a plan; NULL is allowed. */
CAME_API void came_plan_destroy(came_plan* plan);
/** Number of state tensors of all parameters. */
CAME_API came_status came_plan_state_count(const came_plan* plan, int64_t* count);
/** Describes state tensor `index`; those of one parameter lie together, in the order of the parameters. */
CAME_API came_status came_plan_state(const came_plan* plan, int64_t index, came_state_info* info);
/** Describes how parameter `tensor` is seen. */
CAME_API came_status came_plan_view(const came_plan* plan, int64_t tensor, came_matrix_view* view);
/** Number of phases. */
CAME_API came_status came_plan_phase_count(const came_plan* plan, int32_t* count);
/**
 * Describes what the ranks of `reduce_group` all-reduce after phase `phase`.
 *
 * After the first phase it begins with presence: of T tensors sharded over this group, in the plan's order, T doubles
 * "has a gradient" and T doubles "has none", 1 or 0.  Where both are above 0 once all-reduced, the ranks do not agree
 * on what is active.  On the host, any later phase then refuses the step.  A plan of one phase, or one for a device,
 * where nothing waits, leaves this comparison to the caller.  A set found_inf changes nothing about presence.
 */
CAME_API came_status came_plan_reduction(const came_plan* plan, int32_t phase, int32_t reduce_group,
                                         came_reduction* reduction);
/** Bytes of everything a plan needs. */
CAME_API came_status came_plan_memory(const came_plan* plan, came_memory* memory);
/**
 * Checks options that a step is to bring in place of the plan's: schedules of decays, of weight decay, of thresholds
 * need no plan of their own.  What decides state, phases or reductions must be as the plan has it: algorithm, view,
 * momentum_dtype, second_moment_dtype, confidence_1d, cautious, scale_parameter; whether Adafactor and SM3 keep a
 * momentum (beta1 > 0); max_grad_norm stays 0 where no group of the plan clips; stochastic_rounding may be turned on
 * where each parameter has an id of its own.  A step checks the same.
 */
CAME_API came_status came_plan_check_options(const came_plan* plan, const came_options* groups, int32_t group_count);
/** Runs one phase; the ranks of a sharded plan then all-reduce its reductions and run the next.  Gradients, scalars and
   options stay as they are from the first phase to the last. */
CAME_API came_status came_plan_run_phase(const came_plan* plan, int32_t phase, const came_step* step);
/** Runs all phases; refused for a sharded plan, whose reductions need the caller. */
CAME_API came_status came_plan_step(const came_plan* plan, const came_step* step);
/** came_plan_memory of a plan that is not kept: what a list of shapes and options would cost. */
CAME_API came_status came_estimate(const came_options* groups, int32_t group_count, const came_tensor_spec* tensors,
                                   int64_t tensor_count, came_backend backend, came_memory* memory);

/* ---- Optimizer ---------------------------------------------------------------------------------------- */

/** An optimizer that owns its state: for programs without a framework. */
typedef struct came_optimizer came_optimizer;

/** One parameter of an optimizer and where its gradient is found at each step. */
typedef struct came_parameter {
  uint32_t struct_size; /**< sizeof(came_parameter). */
  int32_t group;        /**< Index of its options. */
  const char* name;     /**< Unique; prefix of its exported state and key of its stochastic rounding. */
  came_tensor param;    /**< Host memory that outlives the optimizer; the shape is copied. */
  came_tensor grad;     /**< Same shape; read at each step, never written. */
} came_parameter;

/** Initial value of a came_parameter. */
#define CAME_PARAMETER_INIT \
  { sizeof(came_parameter), 0, 0, CAME_TENSOR_INIT, CAME_TENSOR_INIT }

/** A state tensor by name: "<parameter>.exp_avg", "<parameter>.step", ... */
typedef struct came_named_tensor {
  uint32_t struct_size; /**< sizeof(came_named_tensor). */
  int32_t reserved;     /**< Zero. */
  const char* name;     /**< The name. */
  came_tensor tensor;   /**< The data. */
  int64_t bytes;        /**< Its size; not needed to load. */
} came_named_tensor;

/** Initial value of a came_named_tensor. */
#define CAME_NAMED_TENSOR_INIT \
  { sizeof(came_named_tensor), 0, 0, CAME_TENSOR_INIT, 0 }

/** Builds an optimizer; its state starts at zero. */
CAME_API came_status came_optimizer_create(const came_options* groups, int32_t group_count,
                                           const came_parameter* parameters, int64_t parameter_count,
                                           came_backend backend, came_optimizer** optimizer);
/** Frees an optimizer; NULL is allowed. */
CAME_API void came_optimizer_destroy(came_optimizer* optimizer);
/** One step.  grad_scale divides the gradients (NULL: 1); *found_inf != 0 skips the step (NULL: 0). */
CAME_API came_status came_optimizer_step(came_optimizer* optimizer, const double* grad_scale, const double* found_inf);
/** Points parameter `parameter` to another gradient of the same shape and dtype. */
CAME_API came_status came_optimizer_set_grad(came_optimizer* optimizer, int64_t parameter, const came_tensor* grad);
/** Sets the options of a group, lr included, from the next step on; those that came_plan_check_options would refuse are
 * refused. */
CAME_API came_status came_optimizer_set_options(came_optimizer* optimizer, int32_t group, const came_options* options);
/** Sets the learning rate of a group. */
CAME_API came_status came_optimizer_set_lr(came_optimizer* optimizer, int32_t group, double lr);
/** Bytes of the optimizer's state, workspace and reductions. */
CAME_API came_status came_optimizer_memory(const came_optimizer* optimizer, came_memory* memory);
/** Number of exported state tensors. */
CAME_API came_status came_optimizer_state_count(const came_optimizer* optimizer, int64_t* count);
/** Exports state tensor `index` as a view of the optimizer's own memory, valid while it lives. */
CAME_API came_status came_optimizer_state(const came_optimizer* optimizer, int64_t index, came_named_tensor* state);
/** Imports the whole state by name, in any order; options and learning rates are not part of it.
 * Unless every name, shape and dtype fits, nothing changes.  Codes of vectors and scalars, as older versions saved
 * them, are read as what they stand for. */
CAME_API came_status came_optimizer_load_state(came_optimizer* optimizer, const came_named_tensor* states,
                                               int64_t count);

/* ---- Two pieces of the paper -------------------------------------------------------------------------- */

/** Rank-1 non-negative factorisation (Equation 2 of the paper): w = V 1, h = 1'V / 1'V1; v n x m, w n, h m. */
CAME_API came_status came_nmf_rank1(const came_tensor* v, const came_tensor* w, const came_tensor* h);
/** Plain confidence update (Equation 3 of the paper): out = m / sqrt((m - u)^2 + eps), elementwise. */
CAME_API came_status came_confidence_update(const came_tensor* m, const came_tensor* u, double eps,
                                            const came_tensor* out);

#ifdef __cplusplus
}
#endif

#endif
