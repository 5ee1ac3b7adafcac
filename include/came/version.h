/* Version of the library and of its C ABI.  Plain C99, includes nothing. */
#ifndef CAME_VERSION_H
#define CAME_VERSION_H

/** Major version: incompatible change of an API. */
#define CAME_VERSION_MAJOR 0
/** Minor version: new features. */
#define CAME_VERSION_MINOR 1
/** Patch version: repairs only. */
#define CAME_VERSION_PATCH 0
/** The version as text. */
#define CAME_VERSION_STRING "0.1.0"

/** Version of the binary interface in came.h; a struct that grows raises it. */
#define CAME_ABI_VERSION 2

#endif
