# Targets, left to right: kwire (base + wire) -> kclient (library) -> kc; kwire -> kbcore (broker's cores) -> kbroker; tests.
include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -fno-omit-frame-pointer)
if(KC_WERROR)
  add_compile_options(-Werror)
endif()
add_compile_definitions(_GNU_SOURCE)
if(KC_ASAN)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -O1)
  add_link_options(-fsanitize=address,undefined)
elseif(KC_FUZZ) # clang; tests/fuzz/CMakeLists.txt links the fuzzer itself
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -O1)
  add_link_options(-fsanitize=fuzzer-no-link,address,undefined)
elseif(KC_TSAN)
  add_compile_options(-fsanitize=thread -O1)
  add_link_options(-fsanitize=thread)
endif()

pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
set(KW_LIBS "")
foreach(c ZSTD:libzstd LZ4:liblz4 SNAPPY:snappy GZIP:zlib)
  string(REPLACE ":" ";" c ${c})
  list(GET c 0 opt)
  list(GET c 1 pc)
  if(KC_${opt})
    if(opt STREQUAL SNAPPY) # no .pc file in every distribution
      find_library(SNAPPY_LIB snappy REQUIRED)
      list(APPEND KW_LIBS ${SNAPPY_LIB})
    else()
      pkg_check_modules(${opt} REQUIRED IMPORTED_TARGET ${pc})
      list(APPEND KW_LIBS PkgConfig::${opt})
    endif()
    add_compile_definitions(KC_WITH_${opt}=1)
  endif()
endforeach()
if(KC_TLS)
  pkg_check_modules(SSL REQUIRED IMPORTED_TARGET openssl)
  add_compile_definitions(KC_WITH_TLS=1)
endif()

# Schemas -> structs and descriptors
file(GLOB KW_SCHEMAS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/client/wire/schema/*.ks)
set(KW_GEN ${CMAKE_BINARY_DIR}/gen)
add_custom_command(
  OUTPUT ${KW_GEN}/kw_messages.h ${KW_GEN}/kw_messages.c
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/client/wire/schemagen.py -o ${KW_GEN} ${KW_SCHEMAS}
  DEPENDS ${KW_SCHEMAS} ${PROJECT_SOURCE_DIR}/client/wire/schemagen.py
  COMMENT "Generating messages from the schemas")

file(GLOB KWIRE_SRC CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/client/base/*.c ${PROJECT_SOURCE_DIR}/client/wire/*.c)
add_library(kwire STATIC ${KWIRE_SRC} ${KW_GEN}/kw_messages.c ${KW_GEN}/kw_messages.h)
target_include_directories(kwire PUBLIC ${PROJECT_SOURCE_DIR}/client ${KW_GEN})
target_link_libraries(kwire PUBLIC ${KW_LIBS})

# The client: cores (no I/O) apart from the shell, so that the simulator links the former alone.
file(GLOB KCCORE_SRC CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/client/core/*.c ${PROJECT_SOURCE_DIR}/client/produce/*.c
     ${PROJECT_SOURCE_DIR}/client/consume/*.c)
if(KCCORE_SRC)
  add_library(kccore STATIC ${KCCORE_SRC})
  target_include_directories(kccore PUBLIC ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(kccore PUBLIC kwire)
  include(${PROJECT_SOURCE_DIR}/cmake/client.cmake)
endif()

file(GLOB KBCORE_SRC CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/broker-ref/*/*.c ${PROJECT_SOURCE_DIR}/broker-ref/*.c)
list(FILTER KBCORE_SRC EXCLUDE REGEX "broker-ref/(main|cluster.*|shell_.*|admin_http.*)\\.c$")
if(KBCORE_SRC)
  add_library(kbcore STATIC ${KBCORE_SRC})
  target_include_directories(kbcore PUBLIC ${PROJECT_SOURCE_DIR}/broker-ref)
  target_link_libraries(kbcore PUBLIC kwire)
  include(${PROJECT_SOURCE_DIR}/cmake/broker.cmake)
endif()

if(EXISTS ${PROJECT_SOURCE_DIR}/client/admin.c)
  include(${PROJECT_SOURCE_DIR}/cmake/cli.cmake)
  include(${PROJECT_SOURCE_DIR}/cmake/testkit.cmake)
endif()

if(PROJECT_IS_TOP_LEVEL)
  include(${PROJECT_SOURCE_DIR}/cmake/docs.cmake)
endif()

if(KC_TESTS)
  enable_testing()
  add_subdirectory(tests)
endif()
