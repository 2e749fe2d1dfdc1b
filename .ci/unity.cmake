# SPDX-License-Identifier: MIT
# cmake -DCMAKE_PROJECT_INCLUDE=.ci/unity.cmake: compiles the files of a folder in groups, which
# takes less time from a clean clone and more after a change. Some are compiled one by one: two files
# of these folders give one name to two things, check_minimal.py asks how minimal is compiled, and
# exercise 13 replaces functions of src/patterns, which calls within a file would not notice.
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)

# CMake 3.31 and later would group CUDA files, too.
function(weft_compile_singly)
  get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cu$")
    if(sources)
      set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  foreach(target kernels_attention_ladder_cpu kernels_attention_ladder_cuda src_patterns tests_cases
                 minimal)
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
    endif()
  endforeach()
endfunction()
cmake_language(DEFER CALL weft_compile_singly)
