# What the CPU backend is built with: OpenMP, and the headers of Highway.  Its library is not linked: it only chooses among
# instruction sets, which src/cpu/targets.cpp does.
find_package(OpenMP COMPONENTS CXX)
find_path(CAME_HIGHWAY_INCLUDE hwy/highway.h)
if(NOT OpenMP_CXX_FOUND OR NOT CAME_HIGHWAY_INCLUDE)
  message(FATAL_ERROR "The CPU backend needs OpenMP and Highway's headers (Debian: libhwy-dev); "
                      "CAME_CPU=OFF builds without it, with nothing but the slow reference for host memory.")
endif()

add_library(came_cpu OBJECT
  src/cpu/adafactor.cpp
  src/cpu/adam.cpp
  src/cpu/backend.cpp
  src/cpu/came.cpp
  src/cpu/lamb.cpp
  src/cpu/norm.cpp
  src/cpu/sm3.cpp
  src/cpu/subject.cpp
  src/cpu/targets.cpp)
target_include_directories(came_cpu PRIVATE include src)
target_include_directories(came_cpu SYSTEM PRIVATE ${CAME_HIGHWAY_INCLUDE})
target_link_libraries(came_cpu PRIVATE came_build OpenMP::OpenMP_CXX)
set_target_properties(came_cpu PROPERTIES POSITION_INDEPENDENT_CODE ON)
# SSSE3: a CPU that has it and no SSE4 takes the scalar code.  Highway's own assertions, on in debug and sanitizer builds, end in a
# function of its library; without it they are off in every build.
set(came_highway_definitions HWY_DISABLED_TARGETS=HWY_SSSE3 HWY_IS_DEBUG_BUILD=0)
target_compile_definitions(came_cpu PRIVATE ${came_highway_definitions})
# Without errno, loops over roots become vectors; the results are the same.
target_compile_options(came_cpu PRIVATE -fno-math-errno)
