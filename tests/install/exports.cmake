# The shared library exports the functions of came.h and nothing else: what leaks out becomes an ABI by accident, what
# is missing fails only when a program links.
#
# Reads LIBRARY (the shared library), HEADER (came.h), NM.
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${NM} -D --defined-only --format=posix ${LIBRARY} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
# A line is: name type address size.
list(TRANSFORM symbols REPLACE " .*" "")
if(NOT symbols)
  message(FATAL_ERROR "${LIBRARY} exports nothing")
endif()

file(READ ${HEADER} header)
string(REGEX MATCHALL "\nCAME_API [^(;]*\\(" declared "${header}")
list(TRANSFORM declared REPLACE ".*[ *]([a-z0-9_]+)\\($" "\\1")
if(NOT declared)
  message(FATAL_ERROR "${HEADER} declares no CAME_API function")
endif()

set(leaked ${symbols})
list(REMOVE_ITEM leaked ${declared})
set(missing ${declared})
list(REMOVE_ITEM missing ${symbols})
if(leaked)
  message(SEND_ERROR "exported, but not declared in came.h: ${leaked}")
endif()
if(missing)
  message(SEND_ERROR "declared in came.h, but not exported: ${missing}")
endif()
