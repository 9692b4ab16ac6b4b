# Man pages, made with everything else from the programs' own --help and tables, and installed; `ninja docs`: the API reference of the public headers by Doxygen.
option(KC_MAN "Make and install man pages (runs kc and kbroker)" ON)
if(KC_MAN AND NOT CMAKE_CROSSCOMPILING AND TARGET kc AND TARGET kbroker)
  file(GLOB KC_PUBLIC_HEADERS CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../include/kclient/*.h)
  add_custom_command(
    OUTPUT ${CMAKE_BINARY_DIR}/man/made
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${CMAKE_BINARY_DIR}/man
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/docs/man.py --build ${CMAKE_BINARY_DIR} --out ${CMAKE_BINARY_DIR}/man
    COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/man/made
    DEPENDS kc kbroker ${KC_PUBLIC_HEADERS} ${CMAKE_CURRENT_LIST_DIR}/docs/man.py
    COMMENT "Man pages")
  add_custom_target(man ALL DEPENDS ${CMAKE_BINARY_DIR}/man/made)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} FILES_MATCHING PATTERN "*.[135]")
endif()

find_program(DOXYGEN doxygen)
if(DOXYGEN)
  add_custom_target(docs
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/docs/api.py --doxygen ${DOXYGEN} --out ${CMAKE_BINARY_DIR}/docs
    COMMENT "API reference: ${CMAKE_BINARY_DIR}/docs/html/index.html")
else()
  add_custom_target(docs COMMAND ${CMAKE_COMMAND} -E echo "docs: needs doxygen (Debian: apt install doxygen)" COMMAND ${CMAKE_COMMAND} -E false)
endif()
