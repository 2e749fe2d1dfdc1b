# SPDX-License-Identifier: MIT
# The C library: weft_attention.h, shared and static. The lists of folders are those of CMakeLists.txt.
file(STRINGS src/capi/weft_attention.h capi_version REGEX "^#define WEFT_ATTENTION_VERSION ")
string(REGEX MATCH "[0-9]+" capi_version "${capi_version}")
math(EXPR capi_major "${capi_version} / 10000")
math(EXPR capi_minor "${capi_version} / 100 % 100")
math(EXPR capi_patch "${capi_version} % 100")
set(capi_version ${capi_major}.${capi_minor}.${capi_patch})
weft_host_folder(src/capi)
# What patterns read of those folders, and the parts among them.
target_sources(src_capi PRIVATE src/files/npy.cpp src/config/names.cpp
  ${CMAKE_BINARY_DIR}/registered_in_c_library.cpp
  ${CMAKE_BINARY_DIR}/registered_kernels_in_c_library.cpp)
set(capi_private_libraries "-lstdc++ -lgomp -lpthread -ldl -lrt -lm")
add_library(weft_attention SHARED)
add_library(weft_attention_static STATIC)
foreach(target weft_attention weft_attention_static)
  foreach(folder src/capi ${pattern_folders} ${attention_folders})
    string(REPLACE "/" "_" part ${folder})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${part}>)
  endforeach()
  target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR}/src/capi)
  target_link_libraries(${target} PRIVATE ${OpenMP_CXX_FLAGS} ${CMAKE_DL_LIBS})  # libgomp.a fits no shared library
  set_target_properties(${target} PROPERTIES OUTPUT_NAME weft_attention LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY Static
    PUBLIC_HEADER src/capi/weft_attention.h VERSION ${capi_version} SOVERSION ${capi_major})
  if(with_cuda)
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  endif()
endforeach()
target_link_options(weft_attention PRIVATE LINKER:--version-script=${CMAKE_SOURCE_DIR}/src/capi/weft_attention.map)
set_target_properties(weft_attention PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/src/capi/weft_attention.map)
if(NOT WEFT_SANITIZE)  # nothing is left open, and programs that bring an older C++ runtime can load it
  target_link_options(weft_attention PRIVATE LINKER:--no-undefined -static-libgcc -static-libstdc++)
else()
  target_link_options(weft_attention PRIVATE -fsanitize=address,undefined)
endif()
if(with_cuda)
  string(PREPEND capi_private_libraries "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static ")
endif()
file(RELATIVE_PATH capi_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)  # from the .pc file: the folder may be moved
set(capi_name weft_attention)
set(capi_about "Sparse attention, forward and backward, on the CPU and on CUDA")
configure_file(src/capi/pkgconfig.pc.in ${CMAKE_BINARY_DIR}/lib/weft_attention.pc @ONLY)

install(TARGETS weft_attention weft_attention_static)
install(FILES ${CMAKE_BINARY_DIR}/lib/weft_attention.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
# What the Python package holds: this library, and libweft_sampler in builds of all of weft (train/sampling/capi).
add_custom_target(python_package DEPENDS weft_attention)
install(FILES $<TARGET_FILE:weft_attention> DESTINATION . RENAME libweft_attention.so COMPONENT python EXCLUDE_FROM_ALL)
install(FILES src/capi/weft_attention.h DESTINATION src/capi COMPONENT python EXCLUDE_FROM_ALL)  # for eager.cpp
