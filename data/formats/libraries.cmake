# SPDX-License-Identifier: MIT
# Libraries for files of other formats: sets data_libraries, data_definitions and data_test_libraries. Where one is
# missing, and in static builds (they need many more), weft is built without the commands that use it, and those say so.
set(data_libraries)
set(data_definitions)
set(data_test_libraries)
if(NOT WEFT_STATIC)
  find_package(LibArchive QUIET)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(SNDFILE QUIET IMPORTED_TARGET sndfile)
    pkg_check_modules(SAMPLERATE QUIET IMPORTED_TARGET samplerate)
  endif()
endif()
if(NOT WEFT_STATIC AND LibArchive_FOUND)
  list(APPEND data_libraries LibArchive::LibArchive)
  list(APPEND data_definitions WEFT_LIBARCHIVE)
else()
  message(STATUS "weft: no libarchive (libarchive-dev): npz, zip and tar files are not read")
endif()
if(NOT WEFT_STATIC AND SNDFILE_FOUND AND SAMPLERATE_FOUND)
  list(APPEND data_libraries PkgConfig::SNDFILE PkgConfig::SAMPLERATE)
  list(APPEND data_definitions WEFT_SNDFILE)
  set(data_test_libraries $<LINK_ONLY:PkgConfig::SNDFILE>)  # a test makes files in every container
  set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/data/formats/sound_container_test.cpp PROPERTIES
    COMPILE_DEFINITIONS WEFT_SNDFILE)
else()
  message(STATUS "weft: no libsndfile or libsamplerate (libsndfile1-dev, libsamplerate0-dev): no 'prepare audio'")
endif()
