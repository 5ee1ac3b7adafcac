# The shared library exports the functions of came.h and, for the Python package, of bridge.h, and nothing else: what
# leaks out becomes an ABI by accident, what is missing fails only when a program links.
#
# Reads LIBRARY (the shared library), HEADERS (paths, separated by commas), NM.
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${NM} -D --defined-only --format=posix ${LIBRARY} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
# A line is: name type address size.
list(TRANSFORM symbols REPLACE " .*" "")
if(NOT symbols)
  message(FATAL_ERROR "${LIBRARY} exports nothing")
endif()

string(REPLACE "," ";" headers "${HEADERS}")
foreach(header ${headers})
  file(READ ${header} text)
  string(REGEX MATCHALL "\nCAME_API [^(;]*\\(" functions "${text}")
  list(TRANSFORM functions REPLACE ".*[ *]([a-z0-9_]+)\\($" "\\1")
  if(NOT functions)
    message(FATAL_ERROR "${header} declares no CAME_API function")
  endif()
  list(APPEND declared ${functions})
endforeach()

set(leaked ${symbols})
list(REMOVE_ITEM leaked ${declared})
set(missing ${declared})
list(REMOVE_ITEM missing ${symbols})
if(leaked)
  message(SEND_ERROR "exported, but declared in no header: ${leaked}")
endif()
if(missing)
  message(SEND_ERROR "declared, but not exported: ${missing}")
endif()
