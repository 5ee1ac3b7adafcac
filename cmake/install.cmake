# make install: headers, both libraries, the libtorch adapter, find_package(came) and came.pc.
include(CMakePackageConfigHelpers)

# What a C++ linker adds on its own, such as stdc++ and m: a C program that links the archive must name it.
set(came_runtime ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(REMOVE_ITEM came_runtime ${CMAKE_C_IMPLICIT_LINK_LIBRARIES})
list(REMOVE_DUPLICATES came_runtime)
target_link_libraries(came_static INTERFACE "$<$<LINK_LANGUAGE:C>:${came_runtime}>")
# The OpenMP runtime by its plain name, so that a program in any language needs no find_package(OpenMP).
target_link_libraries(came_static INTERFACE "$<INSTALL_INTERFACE:${OpenMP_CXX_LIB_NAMES}>")

install(DIRECTORY include/came DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS came came_static EXPORT came)
set(came_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/came)
install(EXPORT came NAMESPACE came:: FILE came-targets.cmake DESTINATION ${came_cmake_dir})
# Apart, so that nobody needs libtorch who does not ask for it.
if(CAME_TORCH)
  install(DIRECTORY torch/include/came DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS came_torch EXPORT came-torch)
  install(EXPORT came-torch NAMESPACE came:: FILE came-torch-targets.cmake DESTINATION ${came_cmake_dir})
endif()

configure_package_config_file(cmake/came-config.cmake.in came-config.cmake INSTALL_DESTINATION ${came_cmake_dir})
write_basic_package_version_file(came-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/came-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/came-config-version.cmake
        DESTINATION ${came_cmake_dir})

file(RELATIVE_PATH came_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(came_pc_private ${came_runtime} ${OpenMP_CXX_LIB_NAMES})
list(TRANSFORM came_pc_private PREPEND -l)
list(JOIN came_pc_private " " came_pc_private)
configure_file(cmake/came.pc.in came.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/came.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Inside the Python package: one file, since wheels have no links.  pyproject.toml leaves it out where CAME_KERNELS is OFF.
if(SKBUILD)
  set(came_kernels "$ENV{CAME_KERNELS}")
  if(NOT came_kernels MATCHES "^(|[Oo][Nn]|1|[Tt][Rr][Uu][Ee]|[Yy][Ee][Ss])$")
    message(FATAL_ERROR "CAME_KERNELS: '${came_kernels}' given, expected ON or OFF")
  endif()
  install(PROGRAMS $<TARGET_FILE:came> DESTINATION came_optim/lib RENAME libcame.so COMPONENT python)
endif()
