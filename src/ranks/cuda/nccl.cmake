# SPDX-License-Identifier: MIT
# WEFT_NCCL: AUTO (if found), ON or OFF. Sets nccl_found, WEFT_NCCL_INCLUDE and WEFT_NCCL_LIBRARY. Looks in NCCL_ROOT
# (CMake or environment), the system's folders, and pip's nvidia-nccl-cu12 or -cu13 of the Python on PATH.
set(WEFT_NCCL "AUTO" CACHE STRING "Training on several GPUs: AUTO (if NCCL is found), ON or OFF")
set(nccl_found OFF)
if(with_cuda AND WEFT_NCCL AND NOT (WEFT_STATIC AND WEFT_NCCL STREQUAL "AUTO"))
  set(nccl_folders ${NCCL_ROOT} $ENV{NCCL_ROOT} $ENV{NCCL_HOME} /usr/local/nccl)
  find_program(WEFT_PYTHON3 NAMES python3 python)
  if(WEFT_PYTHON3)
    execute_process(
      COMMAND ${WEFT_PYTHON3} -c "import site, sysconfig as s; print(*dict.fromkeys([s.get_path('purelib'), \
s.get_path('platlib'), site.getusersitepackages()]), sep=';')"
      OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    foreach(folder ${packages})
      list(APPEND nccl_folders ${folder}/nvidia/nccl)
    endforeach()
  endif()
  # Header and library of one folder; the package for Python has the library under its full name alone.
  find_path(WEFT_NCCL_INCLUDE nccl.h HINTS ${nccl_folders} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(WEFT_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${WEFT_NCCL_INCLUDE}/../lib
    ${WEFT_NCCL_INCLUDE}/../lib64 ${nccl_folders} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  if(WEFT_NCCL_INCLUDE AND WEFT_NCCL_LIBRARY)
    set(nccl_found ON)
    file(STRINGS ${WEFT_NCCL_INCLUDE}/nccl.h nccl_header_version REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" nccl_header_version "${nccl_header_version}")
    string(REPLACE ";" "." nccl_header_version "${nccl_header_version}")
    message(STATUS "weft: NCCL ${nccl_header_version}, ${WEFT_NCCL_LIBRARY}")
  elseif(WEFT_NCCL STREQUAL "AUTO")
    message(STATUS "weft: no NCCL, so no training on several GPUs (install libnccl-dev, or pip install "
      "nvidia-nccl-cu13; NCCL_ROOT names its folder)")
  else()
    message(FATAL_ERROR "WEFT_NCCL=${WEFT_NCCL}, and nccl.h or libnccl was not found: install libnccl-dev, or pip "
      "install nvidia-nccl-cu13, and name its folder in NCCL_ROOT")
  endif()
endif()
