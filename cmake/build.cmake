# How everything here is compiled: warnings, sanitizers, ccache, output folders.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(came_build INTERFACE)
# No contraction into fused multiply-adds: the same bits from every compiler and target.
target_compile_options(came_build INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -ffp-contract=off
                                            $<$<BOOL:${CAME_WERROR}>:-Werror>)
if(CAME_SANITIZE STREQUAL undefined)
  # Not part of `undefined`, though it is.
  target_compile_options(came_build INTERFACE -fsanitize=float-cast-overflow)
endif()
if(CAME_SANITIZE)
  target_compile_options(came_build INTERFACE -fsanitize=${CAME_SANITIZE} -fno-sanitize-recover=all
                                              -fno-omit-frame-pointer)
  target_link_options(came_build INTERFACE -fsanitize=${CAME_SANITIZE})
endif()
