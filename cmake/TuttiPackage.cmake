# Debian packages, one per component of the installation: `cpack -G DEB` in the build folder, or `./dev packages`. What they depend on
# outside the project is found by dpkg-shlibdeps.
set(TUTTI_PACKAGE_MAINTAINER "tutti maintainers <maintainers@tutti.invalid>" CACHE STRING "Who answers for the packages: NAME <ADDRESS>")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_CONTACT "${TUTTI_PACKAGE_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_NAME} built using CMake") # CPack's word for none: each package has its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev plugins tools)
set(CPACK_COMPONENTS_GROUPING IGNORE) # a package each
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# tutti_debian_package(COMPONENT NAME SECTION "what it is, in a line" "and in a paragraph" [what else it depends on ...])
function(tutti_debian_package component name section summary description)
  string(TOUPPER ${component} key)
  list(JOIN ARGN ", " depends)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${summary}\n${description}" PARENT_SCOPE)
  # Not part of `cmake --install` without a component: one licence per package is Debian's custom.
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/${name} RENAME copyright COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

set(same_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(library libtutti${PROJECT_VERSION_MAJOR})
tutti_debian_package(runtime ${library} libs "collective communication as a pluggable microkernel: library"
                     "All-reduce and its family for the ranks of a training or HPC job, over shared memory and networks. Algorithms, protocols, networks and tuners are plugins."
                     "tutti-plugins ${same_version}")
tutti_debian_package(plugins tutti-plugins libs "collective communication as a pluggable microkernel: plugins"
                     "The algorithms, protocols, networks, tuners and stores that come with tutti.")
set(CPACK_DEBIAN_PLUGINS_PACKAGE_RECOMMENDS "libcurl4 | libcurl4t64") # store-etcd opens it at run time: see docs/adr/0016-stores.md
set(static_needs "")
if(TUTTI_BUILD_STATIC) # what tuttiConfig.cmake looks for
  set(static_needs libfmt-dev libspdlog-dev libsodium-dev libhwy-dev libpugixml-dev libhwloc-dev)
  if(TUTTI_WITH_TLS)
    list(APPEND static_needs libssl-dev)
  endif()
endif()
tutti_debian_package(dev libtutti-dev libdevel "collective communication as a pluggable microkernel: headers"
                     "The C and C++ API, the headers of the plugin ABI, and files for CMake and pkg-config."
                     "${library} ${same_version}" ${static_needs})
tutti_debian_package(tools tutti-tools utils "collective communication as a pluggable microkernel: the command tutti"
                     "Starts the ranks of a job, measures operations, shows and checks the plans of algorithms, and tells what is loaded and why."
                     "tutti-plugins ${same_version}")

# What packages that link the library are told to need.
file(WRITE ${PROJECT_BINARY_DIR}/deb/shlibs "libtutti ${PROJECT_VERSION_MAJOR} ${library} (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/deb/shlibs)
include(CPack)
