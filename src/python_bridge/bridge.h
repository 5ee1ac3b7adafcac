/*
 * PRIVATE: what the Python package alone calls, through ctypes; it is not installed, and may change in any version.
 *
 * A call from Python costs more than its work here, and a model has hundreds of tensors.  So these functions read whole
 * lists of a framework's objects: tensors through DLPack, lists, dictionaries and attributes through CPython's own
 * functions, whose addresses came_framework holds.  Nothing here includes or links either of them.  The caller holds
 * the interpreter's lock.
 */
#ifndef CAME_PYTHON_BRIDGE_H
#define CAME_PYTHON_BRIDGE_H

#include "came/came.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "Borrowed": the caller does not own a reference to the object.  "New": it does, and releases it. */

/** A borrowed item of a list: PyList_GetItem. */
typedef void* (*came_list_item)(void* list, intptr_t index);
/** Sets an item of a list and takes over the caller's reference; 0: done.  PyList_SetItem. */
typedef int (*came_list_put)(void* list, intptr_t index, void* object);
/** The next entry of a dictionary, borrowed, from position 0 on; 0: there is none.  PyDict_Next. */
typedef int (*came_dict_next)(void* dict, intptr_t* position, void** key, void** value);
/** An attribute of an object, new; the type may be NULL.  tp_descr_get of a Python descriptor. */
typedef void* (*came_attribute_get)(void* attribute, void* object, void* type);
/** Fills a DLTensor from a tensor; 0: done.  dltensor_from_py_object_no_sync of DLPack 1.3's exchange interface. */
typedef int (*came_dlpack_lend)(void* object, void* dl_tensor);
/** What a function returns for one object, new; NULL: an error.  PyObject_CallOneArg. */
typedef void* (*came_function_call)(void* function, void* object);
/** Number of bytes of a storage; negative: an error.  PyObject_Size. */
typedef intptr_t (*came_storage_size)(void* storage);
/** The address that an integer object holds.  PyLong_AsVoidPtr. */
typedef void* (*came_object_address)(void* object);
/** Releases a new reference.  Py_DecRef. */
typedef void (*came_object_release)(void* object);

/** How the tensors of a framework are read. */
typedef struct came_framework {
  uint32_t struct_size;        /**< sizeof(came_framework). */
  int32_t reserved;            /**< Zero. */
  came_list_item item;         /**< Reads lists. */
  came_list_put put;           /**< Writes the list of gradients. */
  came_attribute_get get;      /**< Reads `gradient`. */
  void* gradient;              /**< The attribute that is the gradient of a parameter: Tensor.grad. */
  const void* none;            /**< The object that means "no gradient": None. */
  came_dlpack_lend lend;       /**< Describes a tensor, except the size of its memory. */
  came_function_call call;     /**< Calls the two below. */
  void* storage;               /**< Function: the storage of a tensor.  NULL: storages are not looked at. */
  void* begin;                 /**< Function: where a storage begins, as an integer object. */
  came_storage_size size;      /**< How large a storage is. */
  came_object_address address; /**< Reads the result of `begin`. */
  came_object_release release; /**< Releases the results of `call`. */
} came_framework;

/** Initial value of a came_framework. */
#define CAME_FRAMEWORK_INIT \
  { sizeof(came_framework), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Compares the tensors of a list with `tensors`: shape, type, device, address, row-major order, and whether the storage
 * is large enough.  Returns how many come before the first that differs; -1 for a struct of another size.
 */
CAME_API int64_t came_tensors_hold(const came_framework* framework, void* list, const came_tensor* tensors,
                                   int64_t count);
/**
 * Compares where storages begin and how many bytes they have.  Returns how many come before the first that differs; -1
 * for a struct of another size.  The storages are borrowed: the caller knows that all of them are alive.
 */
CAME_API int64_t came_storages_hold(const came_framework* framework, void* const* storages, const void* const* begins,
                                    const int64_t* bytes, int64_t count);

/** What came_parameters_borrow fills: arrays of `count`. */
typedef struct came_borrowed {
  uint32_t struct_size; /**< sizeof(came_borrowed). */
  int32_t reserved;     /**< Zero. */
  int64_t count;        /**< Number of parameters. */
  came_tensor* params;  /**< Shapes, dtypes and devices are given; addresses are written. */
  came_tensor* grads;   /**< Likewise. */
  uint8_t* active;      /**< Written: whether a parameter has a gradient. */
  int64_t missing;      /**< Written: number of parameters without a gradient. */
} came_borrowed;

/** Initial value of a came_borrowed. */
#define CAME_BORROWED_INIT \
  { sizeof(came_borrowed), 0, 0, 0, 0, 0, 0 }

/**
 * Writes the addresses of a list of parameters and of their gradients into tables.  Each tensor is checked as by
 * came_tensors_hold, except its address.  The gradients are put into the list `kept` of `count` items, which keeps them
 * alive.  Returns how many parameters come before the first that does not fit, or whose gradient does not; -1 for a
 * struct of another size.
 */
CAME_API int64_t came_parameters_borrow(const came_framework* framework, void* list, void* kept,
                                        came_borrowed* borrowed);
/** Whether the first `count` items of a list are these very objects: 1 or 0. */
CAME_API int32_t came_list_holds(void* list, came_list_item item, const void* const* objects, int64_t count);
/**
 * Compares the values of a list of dictionaries with `objects`: those of the first, `counts[0]` of them, then those of
 * the second, and so on.  Returns how many dictionaries come before the first that has others.
 */
CAME_API int64_t came_dicts_hold(void* list, came_list_item item, came_dict_next next, const void* const* objects,
                                 const int64_t* counts, int64_t count);

/**
 * came_plan_step without the check of params, grads and states: the caller vouches that each fits the plan.  It may do
 * so for states that a step of this plan has accepted, and for tensors that came_parameters_borrow has just written.
 * Scalars, options, counts and buffers are checked.
 */
CAME_API came_status came_plan_step_unchecked(const came_plan* plan, const came_step* step);
/**
 * came_plan_run_phase without that check.  Scalars and options are checked in phase 0 only: they must not change from
 * the first phase to the last.  Counts and buffers are checked in each.
 */
CAME_API came_status came_plan_run_phase_unchecked(const came_plan* plan, int32_t phase, const came_step* step);

#ifdef __cplusplus
}
#endif

#endif
