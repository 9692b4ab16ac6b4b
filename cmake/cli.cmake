# kc, the command line: an application over the library, linked statically so that one file runs anywhere.
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
file(GLOB KC_CLI_SRC CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/client/cli/*.c)
add_executable(kc ${KC_CLI_SRC})
target_link_libraries(kc PRIVATE kclient_static kclient_test_static PkgConfig::JANSSON m)
install(TARGETS kc RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
