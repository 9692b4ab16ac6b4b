# The client library: libkclient.so and libkclient.a, each with kwire and the cores inside; installation; pkg-config and CMake package.
find_package(Threads REQUIRED)
file(GLOB KCSHELL_SRC CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/client/*.c)
set(KC_LIBS PkgConfig::UV ${KW_LIBS} Threads::Threads)

add_library(kcshell OBJECT ${KCSHELL_SRC})
target_include_directories(kcshell PRIVATE ${PROJECT_SOURCE_DIR}/client ${KW_GEN} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(kcshell PRIVATE PkgConfig::UV)
add_dependencies(kcshell kwire) # the generated messages

set(KC_OBJECTS $<TARGET_OBJECTS:kcshell> $<TARGET_OBJECTS:kccore> $<TARGET_OBJECTS:kwire>)
add_library(kclient SHARED ${KC_OBJECTS})
add_library(kclient_static STATIC ${KC_OBJECTS})
set_target_properties(kclient PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C)
set_target_properties(kclient_static PROPERTIES OUTPUT_NAME kclient LINKER_LANGUAGE C)
target_include_directories(kclient PUBLIC ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(kclient PRIVATE ${KC_LIBS})
# Inside this tree the static library is also what tests of the cores link: with the private headers.
target_include_directories(kclient_static PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/client ${KW_GEN})
target_link_libraries(kclient_static PUBLIC ${KC_LIBS})
if(NOT KC_ASAN AND NOT KC_TSAN)
  target_link_options(kclient PRIVATE -Wl,--no-undefined)
endif()

# What a static link needs besides, for kclient.pc and the package: pkg-config modules, and plain libraries.
set(KC_PC_REQUIRES libuv)
set(KC_PC_LIBS -lpthread)
foreach(c ZSTD:libzstd LZ4:liblz4 GZIP:zlib)
  string(REPLACE ":" ";" c ${c})
  list(GET c 0 opt)
  list(GET c 1 pc)
  if(KC_${opt})
    list(APPEND KC_PC_REQUIRES ${pc})
  endif()
endforeach()
if(KC_SNAPPY)
  list(APPEND KC_PC_LIBS -lsnappy)
endif()
list(JOIN KC_PC_REQUIRES ", " KC_PC_REQUIRES_TEXT)
list(JOIN KC_PC_LIBS " " KC_PC_LIBS_TEXT)
# ${pcfiledir} is where the file lies: the installation may be moved.
file(RELATIVE_PATH KC_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/client/kclient.pc.in ${CMAKE_BINARY_DIR}/kclient.pc @ONLY)
# The same for whoever links from the build tree (bindings/go): PKG_CONFIG_PATH=build/pkgconfig.
function(kc_build_tree_pc)
  set(KC_PC_PREFIX ..)
  set(CMAKE_INSTALL_INCLUDEDIR include)
  set(CMAKE_INSTALL_LIBDIR lib)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/include SYMBOLIC)
  configure_file(${PROJECT_SOURCE_DIR}/client/kclient.pc.in ${CMAKE_BINARY_DIR}/pkgconfig/kclient.pc @ONLY)
endfunction()
if(PROJECT_IS_TOP_LEVEL)
  kc_build_tree_pc()
endif()
include(CMakePackageConfigHelpers)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kclientConfig.cmake.in ${CMAKE_BINARY_DIR}/kclientConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kclient PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/kclientConfigVersion.cmake COMPATIBILITY SameMajorVersion)

install(TARGETS kclient kclient_static LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kclient DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/kclient.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/kclientConfig.cmake ${CMAKE_BINARY_DIR}/kclientConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kclient)
