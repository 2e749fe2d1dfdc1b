# SPDX-License-Identifier: MIT
# libweft_sampler: weft_sampler.h on the engine, so that libweft_attention needs OpenMP alone. It holds the engine, and shows
# weft_sampler.h alone: a C++ runtime that was linked statically does not mix with that of the program that loads it.
if(WEFT_STATIC)
  message(STATUS "weft: no libweft_sampler: static libraries of others don't fit into a shared one")
  return()
endif()
weft_host_folder(train/sampling/capi)
target_sources(train_sampling_capi PRIVATE src/capi/errors.cpp)
target_include_directories(train_sampling_capi PRIVATE src/capi)
weft_library(weft_sampler ${engine_folders} ${kernel_folders} ${attention_folders} train/sampling/capi)
target_link_libraries(weft_sampler PRIVATE CLI11::CLI11 ${engine_libraries} ${kernel_libraries})
if(with_cuda)
  target_link_libraries(weft_sampler PRIVATE ${cudart})
endif()
target_include_directories(weft_sampler INTERFACE ${CMAKE_SOURCE_DIR}/src/capi ${CMAKE_SOURCE_DIR}/train/sampling/capi)
target_link_options(weft_sampler PRIVATE LINKER:--version-script=${CMAKE_SOURCE_DIR}/train/sampling/capi/weft_sampler.map)
set_target_properties(weft_sampler PROPERTIES LINK_DEPENDS
  ${CMAKE_SOURCE_DIR}/train/sampling/capi/weft_sampler.map)
block()  # those of weft_attention stay as they are
  set(capi_name weft_sampler)
  set(capi_about "Next-token logits of a weft checkpoint, text by text")
  set(capi_private_libraries "")
  configure_file(src/capi/pkgconfig.pc.in ${CMAKE_BINARY_DIR}/lib/weft_sampler.pc @ONLY)
endblock()

install(TARGETS weft_sampler)
install(FILES train/sampling/capi/weft_sampler.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/lib/weft_sampler.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
add_dependencies(python_package weft_sampler)
install(TARGETS weft_sampler LIBRARY DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)
