# What every target of the project shares: warnings, sanitizers, and the functions that folders call.
include(TuttiPlugin)

set(TUTTI_SANITIZE "" CACHE STRING "Sanitizers, separated by commas: address,undefined or thread")

# Language level and warnings; no global flags.
# Unless the user has flags of its own, what a release optimizes is said per target: 3 for engine and kernels, 1 for command lines and
# tests, which only take longer to compile, else 2.
if("${CMAKE_CXX_FLAGS_RELEASE}" STREQUAL "-O3 -DNDEBUG")
  set(TUTTI_RELEASE_LEVEL $<$<CONFIG:Release>:-O$<IF:$<BOOL:$<TARGET_PROPERTY:TUTTI_OPTIMIZE>>,$<TARGET_PROPERTY:TUTTI_OPTIMIZE>,2>>)
endif()
add_library(tutti_build_flags INTERFACE)
target_compile_features(tutti_build_flags INTERFACE cxx_std_20 c_std_11)
target_compile_options(tutti_build_flags INTERFACE -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
                       $<$<BOOL:${TUTTI_WERROR}>:-Werror>
                       # GCC 12 sees overlaps and overruns in std::string's own operator+ (GCC bug 105651); clang and the address
                       # sanitizer look for real ones.
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict$<SEMICOLON>-Wno-array-bounds$<SEMICOLON>-Wno-stringop-overflow$<SEMICOLON>-Wno-stringop-overread>
                       ${TUTTI_RELEASE_LEVEL})
if(TUTTI_SANITIZE)
  target_compile_options(tutti_build_flags INTERFACE -fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(tutti_build_flags INTERFACE -fsanitize=${TUTTI_SANITIZE})
  target_compile_definitions(tutti_build_flags INTERFACE TUTTI_SANITIZED)
  if(TUTTI_SANITIZE MATCHES thread)
    # Fences order atomics here, which the thread sanitizer takes as ordered anyway.
    target_compile_options(tutti_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
  if(TUTTI_SANITIZE MATCHES undefined)
    # Dynamic types are compared by symbols that our visibility hides; enumerators of the C API come from callers and are checked
    # by us, wrong ones too.
    target_compile_options(tutti_build_flags INTERFACE -fno-sanitize=vptr,enum $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
    # In code of vectors these check every access, as the address sanitizer does, and take five times as long to compile.
    target_compile_options(tutti_build_flags INTERFACE
                           $<$<BOOL:$<TARGET_PROPERTY:TUTTI_SIMD>>:-fno-sanitize=null$<COMMA>alignment$<COMMA>object-size$<COMMA>pointer-overflow>)
  endif()
endif()
if(TUTTI_BUILD_FUZZERS) # what is fuzzed counts its branches, too
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang OR NOT TUTTI_SANITIZE MATCHES address)
    message(FATAL_ERROR "TUTTI_BUILD_FUZZERS needs clang and TUTTI_SANITIZE=address")
  endif()
  target_compile_options(tutti_build_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# tutti_precompile(TARGET [FROM OTHER] [HEADERS ...]): with TUTTI_PRECOMPILE, TARGET reads the standard headers and HEADERS from one
# precompiled file; FROM a target compiled with the same flags, it shares that one's. Sources include what they use all the same.
function(tutti_precompile target)
  cmake_parse_arguments(ARG "" "FROM" "HEADERS" ${ARGN})
  if(NOT TUTTI_PRECOMPILE OR ARG_FROM STREQUAL target)
    return()
  elseif(ARG_FROM)
    target_precompile_headers(${target} REUSE_FROM ${ARG_FROM})
  else()
    list(TRANSFORM ARG_HEADERS REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
    target_precompile_headers(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/cmake/standard_headers.h> ${ARG_HEADERS})
  endif()
endfunction()

# tutti_simd(TARGET): it compiles code once per SIMD target, with Highway. Sanitizers look for wrong addresses, which are alike in all:
# one is enough for them, and a real one, for emulated vectors take five times as long to compile and to run.
function(tutti_simd target)
  target_link_libraries(${target} PRIVATE PkgConfig::hwy)
  set_target_properties(${target} PROPERTIES TUTTI_SIMD ON)
  if(TUTTI_SANITIZE)
    target_compile_definitions(${target} PRIVATE HWY_COMPILE_ONLY_STATIC)
    if(CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
      target_compile_options(${target} PRIVATE -msse4.2 -maes -mpclmul)
    endif()
  endif()
endfunction()

# tutti_core_part(NAME [OPTIMIZE n] SOURCES ... [PUBLIC libs] [PRIVATE libs]): one folder of core/ as a static library; libtutti.so
# holds all.
function(tutti_core_part name)
  cmake_parse_arguments(ARG "" "OPTIMIZE" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(tutti_${name} STATIC ${ARG_SOURCES})
  set_property(GLOBAL APPEND PROPERTY TUTTI_PARTS tutti_${name})
  set_target_properties(tutti_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                        C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(tutti_${name} PUBLIC ${PROJECT_SOURCE_DIR}/core ${PROJECT_SOURCE_DIR}/core/include)
  target_link_libraries(tutti_${name} PUBLIC tutti_plugin_api fmt::fmt Threads::Threads ${ARG_PUBLIC}
                        PRIVATE tutti_build_flags ${ARG_PRIVATE})
  if(ARG_OPTIMIZE)
    set_target_properties(tutti_${name} PROPERTIES TUTTI_OPTIMIZE ${ARG_OPTIMIZE})
  elseif(name STREQUAL base)
    tutti_precompile(tutti_base HEADERS fmt/format.h)
  else()
    tutti_precompile(tutti_${name} FROM tutti_base)
  endif()
endfunction()

# tutti_debug_info(FILE...): whole types for debuggers from these sources, whatever the build type. Code stays what it is.
function(tutti_debug_info)
  set(whole $<IF:$<CXX_COMPILER_ID:Clang>,-fstandalone-debug,-femit-class-debug-always>)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "-g;${whole}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# tutti_add_test(NAME LABELS l... SOURCES ... [LIBS ...] [TIMEOUT s] [ARGUMENTS ...]): a doctest binary registered with ctest. A test of several ranks
# counts as two processors, so that `ctest -j` runs a light test beside it and no second one of its kind.
function(tutti_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;SOURCES;LIBS;ARGUMENTS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests TUTTI_OPTIMIZE 1)
  target_compile_definitions(${name} PRIVATE TUTTI_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TUTTI_BINARY_DIR="${CMAKE_BINARY_DIR}")
  target_link_libraries(${name} PRIVATE tutti_build_flags tutti_test_main ${ARG_LIBS})
  tutti_precompile(${name} FROM tutti_test_main)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGUMENTS})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(TUTTI_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if("multirank" IN_LIST ARG_LABELS)
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
endfunction()

# tutti_add_fuzzer(NAME SOURCES ... [LIBS ...]): one program per input that others may write, and a test fuzz.NAME. With
# TUTTI_BUILD_FUZZERS it is a libFuzzer program in fuzz/NAME, which the test runs for a moment and `./dev fuzz` for long; without, the
# test feeds it every file of tests/fuzz/corpus/NAME once.
function(tutti_add_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  add_executable(fuzz_${name} ${ARG_SOURCES})
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz OUTPUT_NAME ${name} TUTTI_OPTIMIZE 1)
  target_link_libraries(fuzz_${name} PRIVATE tutti_build_flags ${ARG_LIBS})
  target_include_directories(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz)
  if(TUTTI_BUILD_FUZZERS)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    file(GLOB seeds CONFIGURE_DEPENDS ${corpus}/*)
    list(JOIN seeds "," seeds) # a list of files, not a folder: what is found in a test is not kept
    file(WRITE ${CMAKE_BINARY_DIR}/fuzz/${name}.seeds "${seeds}")
    add_test(NAME fuzz.${name} COMMAND fuzz_${name} -runs=5000 -seed=1 -timeout=10 -rss_limit_mb=2048 -max_len=4096
             -seed_inputs=@${CMAKE_BINARY_DIR}/fuzz/${name}.seeds -artifact_prefix=${CMAKE_BINARY_DIR}/fuzz/)
  else()
    target_sources(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.cc)
    add_test(NAME fuzz.${name} COMMAND fuzz_${name} ${corpus})
  endif()
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 120)
endfunction()
