# The installed package: tutti::core, tutti::plugin_api, tutti_add_plugin(), and two pkg-config files. Components: runtime, dev,
# plugins, tools; TuttiPackage.cmake makes a .deb of each.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)

install(TARGETS tutti_core EXPORT tutti LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev
        FILE_SET HEADERS COMPONENT dev)
install(TARGETS tutti_plugin_api EXPORT tutti)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/plugin-api/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev FILES_MATCHING PATTERN "*.h")
if(EXISTS ${PROJECT_SOURCE_DIR}/plugin-api/cxx)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/plugin-api/cxx/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
          FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
endif()
if(TUTTI_BUILD_STATIC)
  install(TARGETS tutti_core_static EXPORT tutti ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev FILE_SET HEADERS COMPONENT dev)
endif()
install(EXPORT tutti NAMESPACE tutti:: DESTINATION ${package_dir} FILE tuttiTargets.cmake COMPONENT dev)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tuttiConfig.cmake.in ${PROJECT_BINARY_DIR}/tuttiConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/TuttiPlugin.cmake ${PROJECT_SOURCE_DIR}/cmake/TuttiCheckExports.cmake
              ${PROJECT_SOURCE_DIR}/cmake/plugin.map DESTINATION ${package_dir} COMPONENT dev)

# prefix follows the file, so that a staged or moved installation tells the truth.
file(RELATIVE_PATH TUTTI_PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" TUTTI_PC_PREFIX "${TUTTI_PC_PREFIX}")
foreach(pc tutti tutti-plugin-api)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${pc}.pc.in ${PROJECT_BINARY_DIR}/${pc}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${pc}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endforeach()
