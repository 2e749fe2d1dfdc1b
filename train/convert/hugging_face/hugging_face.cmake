# SPDX-License-Identifier: MIT
# The texts of python_files.h, written anew where one of the files changes.
set(weft_python_texts "")
foreach(name modeling_weft.py sparse_transformer.py)
  set(path ${CMAKE_SOURCE_DIR}/src/python/weft_attention/${name})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  string(APPEND weft_python_texts "    {\"${name}\", R\"PYTHON(${text})PYTHON\"},\n")
endforeach()
configure_file(train/convert/hugging_face/python_files.cpp.in ${CMAKE_BINARY_DIR}/python_files.cpp @ONLY)
target_sources(train_convert_hugging_face PRIVATE ${CMAKE_BINARY_DIR}/python_files.cpp)
target_link_libraries(train_convert_hugging_face PRIVATE nlohmann_json::nlohmann_json)
