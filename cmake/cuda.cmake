# What the CUDA backend is built with.  The runtime is linked statically: the library needs a driver and nothing else.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  # Machine code for each, and PTX of the last for what comes after it.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90-real 100-real 120)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

# CMake 3.25 does not know that nvcc has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)

# How device code is compiled.  No contraction there either: it fuses where it says so, so that all routes round alike.
add_library(came_device INTERFACE)
target_compile_options(came_device INTERFACE --fmad=false --expt-relaxed-constexpr
                                             $<$<BOOL:${CAME_WERROR}>:--Werror=all-warnings>
                                             -Xcompiler=-Wall,-Wextra,-Wshadow,-ffp-contract=off)

add_library(came_cuda OBJECT
  src/cuda/adafactor.cu
  src/cuda/adam.cu
  src/cuda/backend.cu
  src/cuda/begin.cu
  src/cuda/came.cu
  src/cuda/content.cu
  src/cuda/lamb.cu
  src/cuda/launching.cu
  src/cuda/norm.cu
  src/cuda/presence.cu
  src/cuda/resident.cu
  src/cuda/sm3.cu
  src/cuda/statistics.cu
  src/cuda/strips.cu
  src/cuda/tables.cu
  src/cuda/vectors.cu
  src/cuda/waves.cu)
target_include_directories(came_cuda PRIVATE include src)
target_link_libraries(came_cuda PRIVATE came_device CUDA::cudart_static)
set_target_properties(came_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
