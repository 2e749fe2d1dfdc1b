# SPDX-License-Identifier: MIT
# What the tests of libweft_sampler add to weft_tests.
if(TARGET weft_sampler)
  target_link_libraries(weft_tests PRIVATE weft_sampler)
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/sampler_test.cpp PROPERTIES COMPILE_DEFINITIONS
    "WEFT_TEST_CC=\"${CMAKE_C_COMPILER}$<$<BOOL:${WEFT_SANITIZE}>: -fsanitize=address,undefined>\";WEFT_TEST_BUILD=\"${CMAKE_BINARY_DIR}\";WEFT_TEST_CMAKE=\"${CMAKE_COMMAND}\"")
else()
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/sampler_test.cpp PROPERTIES HEADER_FILE_ONLY ON)
endif()
