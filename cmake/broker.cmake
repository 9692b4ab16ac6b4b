# kbroker: the broker's cores (kbcore, without I/O) in the libuv shell. kbcore parses fault rules with jansson.
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(MHD REQUIRED IMPORTED_TARGET libmicrohttpd)
find_package(Threads REQUIRED)
target_link_libraries(kbcore PUBLIC PkgConfig::JANSSON)

file(GLOB KBSHELL_SRC CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/broker-ref/shell_*.c)
file(GLOB KBCLUSTER_SRC CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/broker-ref/cluster*.c ${PROJECT_SOURCE_DIR}/broker-ref/admin_http*.c)
add_executable(kbroker ${PROJECT_SOURCE_DIR}/broker-ref/main.c ${KBSHELL_SRC} ${KBCLUSTER_SRC} ${PROJECT_SOURCE_DIR}/client/shell_timer.c)
target_compile_definitions(kbroker PRIVATE KB_VERSION="${PROJECT_VERSION}")
target_link_libraries(kbroker PRIVATE kbcore PkgConfig::UV PkgConfig::MHD Threads::Threads)
install(TARGETS kbroker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
