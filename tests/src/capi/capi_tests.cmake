# SPDX-License-Identifier: MIT
# What the tests of the C library add to weft_tests: calls in C, apart from the C++, which shares a precompiled header, and
# how a test links a program with the library.
add_library(weft_tests_c OBJECT ${CMAKE_CURRENT_LIST_DIR}/capi_calls.c)
target_include_directories(weft_tests_c PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_options(weft_tests_c PRIVATE -std=c99 -pedantic -Wall -Wextra $<$<BOOL:${WEFT_WERROR}>:-Werror>)
target_sources(weft_tests PRIVATE $<TARGET_OBJECTS:weft_tests_c>)
target_link_libraries(weft_tests PRIVATE weft_attention)
add_dependencies(weft_tests weft_attention_static)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/capi_test.cpp PROPERTIES COMPILE_DEFINITIONS
  "WEFT_TEST_STATIC_LIBRARIES=\"${capi_private_libraries}\";WEFT_TEST_CC=\"${CMAKE_C_COMPILER}$<$<BOOL:${WEFT_SANITIZE}>: -fsanitize=address,undefined>\"")
