# weft is a core and parts. A part is a set of folders that can be switched off with one option, or
# deleted: the core builds and passes its tests without it. This table is the only place that names
# parts; register_parts() (src/parts/parts.h) is written from it.

# weft_part(NAME OPTION ABOUT
#           [FOLDERS ...]   folders below kernels, src, models, data and train, with their subfolders;
#                           the tests of src/NAME lie in tests/src/NAME, and so on
#           [REQUIRES ...]  parts without which this one is not built
#           [C_LIBRARY]     the part is registered in the C library as well; its option is no help there
#                           otherwise
#           [KERNELS]       it adds forms of kernels: register_kernel_parts() (kernels/forms.h) calls it
#           [NO_GPU_TESTS]  no test named Cuda* runs it: the record of GPU tests covers only those of its
#                           files that others include (tests/tools/gpu_sources.py)
#           [HOLDS ...])    what a person may ask for that the part brings: kinds of patterns, sections
#                           or keys of a config, programs, options. Errors name OPTION for them.
# Adds NAME to weft_parts when it is switched on and its folders are there, and defines `void
# weft::register_NAME()` as what the folders have to bring. A part that adds to no table, but
# brings programs or libraries: REGISTERS_NOTHING.
function(weft_part name option about)
  cmake_parse_arguments(part "C_LIBRARY;KERNELS;REGISTERS_NOTHING;NO_GPU_TESTS" "" "FOLDERS;REQUIRES;HOLDS" ${ARGN})
  option(${option} "${about}" ON)
  set(built ${${option}})
  foreach(folder ${part_FOLDERS})
    if(NOT IS_DIRECTORY ${CMAKE_SOURCE_DIR}/${folder})
      set(built OFF)
    endif()
  endforeach()
  get_property(before GLOBAL PROPERTY weft_parts)
  set(switches ${option})  # what errors tell to set
  foreach(required ${part_REQUIRES})
    if(NOT required IN_LIST before)
      set(built OFF)
      get_property(others GLOBAL PROPERTY weft_switches_of_${required})
      string(APPEND switches "=ON -D${others}")
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY weft_switches_of_${name} "${switches}")
  set(here "")
  foreach(folder ${part_FOLDERS})
    if(built)
      list(APPEND here ${folder})
      set_property(GLOBAL APPEND PROPERTY weft_part_folders ${folder})
    endif()
    if(NOT built)
      set_property(GLOBAL APPEND PROPERTY weft_absent_folders ${folder} tests/${folder})
    endif()
  endforeach()
  if(built)
    set(is_built true)
    set_property(GLOBAL APPEND PROPERTY weft_parts ${name})
    set(registered registered)
    if(part_KERNELS)
      set(registered registered_kernels)
    endif()
    if(NOT part_REGISTERS_NOTHING)
      set_property(GLOBAL APPEND PROPERTY weft_${registered} ${name})
      if(part_C_LIBRARY)
        set_property(GLOBAL APPEND PROPERTY weft_${registered}_in_c_library ${name})
      endif()
    endif()
  else()
    set(is_built false)
    message(STATUS "weft: without ${name} (${about})")
  endif()
  string(JOIN " " holds ${part_HOLDS})
  set(row "    {\"${name}\", \"${switches}\", \"${holds}\", ${is_built}},\n")
  set_property(GLOBAL APPEND_STRING PROPERTY weft_registered_table "${row}")
  if(NOT part_C_LIBRARY)
    set(row "    {\"${name}\", \"\", \"${holds}\", false},\n")
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY weft_registered_in_c_library_table "${row}")
  set(weft_part_${name} "${here}" PARENT_SCOPE)  # its folders, none when it is not built
endfunction()

# The files that register the parts which are built: in the engine, in the kernels, and in the C library.
function(weft_write_parts)
  foreach(library registered registered_in_c_library registered_kernels registered_kernels_in_c_library)
    get_property(names GLOBAL PROPERTY weft_${library})
    get_property(weft_part_table GLOBAL PROPERTY weft_${library}_table)
    set(weft_declarations "")
    set(weft_calls "")
    foreach(name ${names})
      string(APPEND weft_declarations "void register_${name}();\n")
      string(APPEND weft_calls "    register_${name}();\n")
    endforeach()
    set(template parts)
    if(library MATCHES kernels)
      set(template kernel_parts)
    endif()
    configure_file(${CMAKE_SOURCE_DIR}/src/parts/${template}.cpp.in ${CMAKE_BINARY_DIR}/${library}.cpp @ONLY)
  endforeach()
endfunction()

# weft_without_absent(LIST): leaves out the sources of parts that are not built.
function(weft_without_absent list)
  get_property(absent GLOBAL PROPERTY weft_absent_folders)
  set(sources ${${list}})
  foreach(folder ${absent})
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_SOURCE_DIR}/${folder}/")
  endforeach()
  set(${list} ${sources} PARENT_SCOPE)
endfunction()

weft_part(content WEFT_WITH_CONTENT "routing, lsh and topk_blocks: queries and keys decide what a head sees"
  FOLDERS kernels/attention/content src/content train/content tests/cases/content
  HOLDS routing lsh topk_blocks)

weft_part(muon WEFT_WITH_MUON "the optimizer Muon, for the matrices of the residual blocks"
  FOLDERS kernels/optimizer/muon src/optimizer/muon tests/cases/muon
  HOLDS muon train.muon_learning_rate train.muon_momentum train.muon_weight_decay)

weft_part(more_patterns WEFT_WITH_MORE_PATTERNS "longformer, bigbird, convolution and layout"
  FOLDERS src/patterns/more
  C_LIBRARY
  HOLDS longformer bigbird convolution layout)

weft_part(bindings WEFT_WITH_BINDINGS "the C libraries and the Python package"
  FOLDERS src/capi src/python train/sampling/capi
  REQUIRES more_patterns
  REGISTERS_NOTHING)

weft_part(rows16 WEFT_WITH_ROWS16 "attention over tiles of 16 rows, and heads of 136 to 256 on tensor cores"
  FOLDERS kernels/attention/rows16
  KERNELS
  C_LIBRARY)

weft_part(hopper WEFT_WITH_HOPPER "attention by wgmma and TMA, on Hopper GPUs"
  FOLDERS kernels/attention/hopper
  KERNELS
  C_LIBRARY)

weft_part(decode WEFT_WITH_DECODE "sampling with one kernel for all blocks, on Hopper"
  FOLDERS kernels/sampling/decode
  KERNELS)

weft_part(ranks WEFT_WITH_RANKS "several processes that train together, one a GPU"
  FOLDERS src/ranks train/ranks
  HOLDS --gpus --rank-log train.reduce_dtype train.bucket_mb train.shard_optimizer WORLD_SIZE OMPI_COMM_WORLD_SIZE
    SLURM_STEP_NUM_TASKS)

weft_part(replay WEFT_WITH_REPLAY "updates that are run twice, to find faults of a device"
  FOLDERS train/replay
  HOLDS --verify-every)

weft_part(formats WEFT_WITH_FORMATS "images and sound: their files, augmentation, samples"
  FOLDERS data/formats data/augment train/formats
  HOLDS images audio cifar10 imagenet64 imagenet32 augment data.mix data.mix_rate data.mix_items
    data.labels data.classes .wav .png --heatmap --augmentations --augmentation --singles --label --upright
    --complete --rows --split --first --images --rate)

weft_part(convert WEFT_WITH_CONVERT "weights as safetensors files, and back"
  FOLDERS src/convert train/convert
  HOLDS convert .safetensors)

weft_part(inspect WEFT_WITH_INSPECT "parameters, memory and FLOPs of a config, drawings of patterns"
  FOLDERS train/inspect
  REGISTERS_NOTHING
  NO_GPU_TESTS
  HOLDS inspect)

weft_part(report WEFT_WITH_REPORT "pages of runs, pictures, TensorBoard"
  FOLDERS train/report
  REQUIRES inspect
  HOLDS --no-report --tensorboard --png report)

weft_part(bench WEFT_WITH_BENCH "the program bench: times of training steps, attention, sampling and kernels"
  FOLDERS train/bench
  REGISTERS_NOTHING)

weft_part(bench_ranks WEFT_WITH_BENCH_RANKS "bench step of several processes: what they lose to each other"
  FOLDERS train/bench_ranks
  REQUIRES ranks bench
  HOLDS exchange)

weft_part(hugging_face WEFT_WITH_HUGGING_FACE "checkpoints as folders for the Python package transformers"
  FOLDERS train/convert/hugging_face
  REQUIRES bindings convert
  HOLDS --to)

weft_part(ladder WEFT_WITH_LADDER "attention as a ladder, from plain loops to the real kernel; bench ladder"
  FOLDERS kernels/attention/ladder
  REQUIRES bench
  REGISTERS_NOTHING
  HOLDS ladder)

weft_write_parts()
