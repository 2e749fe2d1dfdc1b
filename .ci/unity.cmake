# SPDX-License-Identifier: MIT
# cmake -DCMAKE_PROJECT_INCLUDE=.ci/unity.cmake: compiles the files of a folder in groups, which
# takes less time from a clean clone and more after a change. Two files of these folders give one
# name to two things, and are compiled one by one.
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)

function(weft_compile_singly)
  foreach(target kernels_attention_ladder_cpu src_files src_ranks train_ranks train_bench
                 train_inspect train_sampling_capi tests_cases)
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
    endif()
  endforeach()
endfunction()
cmake_language(DEFER CALL weft_compile_singly)
