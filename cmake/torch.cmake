# Finds libtorch for the adapter in torch/: where CMAKE_PREFIX_PATH or Torch_DIR say, else in .venv, whose wheel of torch is
# one.  CAME_TORCH: ON, OFF, or AUTO, where there is one in these places.
set(came_torch_places "")
if(PROJECT_IS_TOP_LEVEL)
  file(GLOB came_torch_places ${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch/share/cmake)
endif()

if(CAME_TORCH STREQUAL AUTO)
  # Uninstrumented libraries and sanitizers get along only by luck, and wheels of the Python package need no adapter.  Looked
  # for by its file, since the package of a CUDA build stops the configuration where there is no nvcc.
  find_file(CAME_TORCH_CONFIG TorchConfig.cmake PATHS ${Torch_DIR} ${CMAKE_PREFIX_PATH} ${came_torch_places}
            PATH_SUFFIXES Torch share/cmake/Torch NO_DEFAULT_PATH NO_CACHE)
  if(CAME_TORCH_CONFIG AND NOT CAME_SANITIZE AND NOT SKBUILD)
    set(CAME_TORCH ON)
  else()
    set(CAME_TORCH OFF)
  endif()
  message(STATUS "libtorch adapter: ${CAME_TORCH}")
endif()

if(CAME_TORCH)
  find_package(Torch REQUIRED HINTS ${came_torch_places})
endif()
