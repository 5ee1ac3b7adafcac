# Installs a build into a fresh prefix, then builds and runs consumer/ against the prefix alone.
#
# Reads MODE (shared, static, pkg_config, torch), BUILD_DIR, WORK_DIR (emptied), LIBDIR (below the prefix), GENERATOR,
# C_COMPILER, CXX_COMPILER; for torch also TORCH_DIR and EXAMPLE, the project that takes the place of consumer/.
cmake_minimum_required(VERSION 3.25)

set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})
file(COPY ${CMAKE_CURRENT_LIST_DIR}/consumer DESTINATION ${WORK_DIR})

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK_DIR} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Moved after the installation: whatever remembers its first place breaks here and not at a user's.
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/first_place)
file(RENAME ${WORK_DIR}/first_place ${prefix})

# Builds a project in one language through find_package and runs its program; ARGN: more definitions.
function(build_and_run project program language)
  set(build ${WORK_DIR}/build_${language})
  run(${CMAKE_COMMAND} -S ${project} -B ${build} -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
      -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_${language}_COMPILER=${${language}_COMPILER} ${ARGN})
  load_cache(${build} READ_WITH_PREFIX found_ came_DIR)
  cmake_path(IS_PREFIX prefix "${found_came_DIR}" inside)
  if(NOT inside)
    message(FATAL_ERROR "find_package found ${found_came_DIR}, which is not in ${prefix}")
  endif()
  run(${CMAKE_COMMAND} --build ${build})
  run(${build}/${program})
endfunction()

# The consumer in one language with one of the libraries.
function(consume_package language library)
  build_and_run(consumer consumer ${language} -DCONSUMER_LANGUAGE=${language} -DCONSUMER_LIBRARY=${library})
endfunction()

# Builds a consumer in one language with the flags of pkg-config and runs it; ARGN: more options for pkg-config.
function(consume_pkg_config compiler standard source)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_LIBDIR=${prefix}/${LIBDIR}/pkgconfig
            pkg-config --cflags --libs ${ARGN} came
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  message(STATUS "pkg-config ${ARGN}: ${flags}")
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run(${compiler} -std=${standard} consumer/${source} ${flags} -o ${source}.out)
  run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${prefix}/${LIBDIR} ${WORK_DIR}/${source}.out)
endfunction()

if(MODE STREQUAL "pkg_config")
  consume_pkg_config(${C_COMPILER} c99 consumer.c)
  consume_pkg_config(${CXX_COMPILER} c++20 consumer.cpp)
  # A linker that finds both libraries takes the shared one, so --static is tried where there is only the archive.
  file(GLOB shared ${prefix}/${LIBDIR}/libcame.so*)
  file(REMOVE ${shared})
  consume_pkg_config(${C_COMPILER} c99 consumer.c --static)
  consume_pkg_config(${CXX_COMPILER} c++20 consumer.cpp --static)
elseif(MODE STREQUAL "torch")
  build_and_run(${EXAMPLE} mlp CXX -DTorch_DIR=${TORCH_DIR})
else()
  set(library came::came)
  if(MODE STREQUAL "static")
    set(library came::static)
  endif()
  consume_package(C ${library})
  consume_package(CXX ${library})
endif()
