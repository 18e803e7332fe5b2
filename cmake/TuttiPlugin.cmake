# tutti_add_plugin(NAME SOURCES ... [LIBS ...]): libtutti-NAME.so with hidden visibility and one exported symbol, tutti_plugin_v1.
# The same in our own build and, after find_package(tutti), in that of a plugin's author. With testing on it registers the contract
# test plugin.NAME.exports.
set(TUTTI_PLUGIN_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR})

function(tutti_add_plugin name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(tutti-${name} MODULE ${ARG_SOURCES})
  set_target_properties(tutti-${name} PROPERTIES CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON LINK_DEPENDS ${TUTTI_PLUGIN_CMAKE_DIR}/plugin.map)
  if(DEFINED TUTTI_PLUGIN_OUTPUT_DIRECTORY)
    set_target_properties(tutti-${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TUTTI_PLUGIN_OUTPUT_DIRECTORY})
  endif()
  target_link_libraries(tutti-${name} PRIVATE tutti::plugin_api ${ARG_LIBS})
  if(TARGET tutti_build_flags)
    target_link_libraries(tutti-${name} PRIVATE tutti_build_flags)
  endif()
  target_link_options(tutti-${name} PRIVATE -Wl,--version-script=${TUTTI_PLUGIN_CMAKE_DIR}/plugin.map)
  include(GNUInstallDirs)
  install(TARGETS tutti-${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti/plugins COMPONENT plugins)
  if(TUTTI_BUILD_TESTS OR BUILD_TESTING)
    add_test(NAME plugin.${name}.exports COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DFILE=$<TARGET_FILE:tutti-${name}>
             -DEXPECTED=^tutti_plugin_v1$ -P ${TUTTI_PLUGIN_CMAKE_DIR}/TuttiCheckExports.cmake)
    set_tests_properties(plugin.${name}.exports PROPERTIES LABELS unit TIMEOUT 30)
  endif()
endfunction()
