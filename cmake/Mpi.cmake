# ballast_find_mpi(VARIABLE NAME [find_program's options]): finds an MPI's C++ compiler. One that has no headers (openmpi-bin without
# libopenmpi-dev, say) does not count.
function(ballast_find_mpi variable name)
  find_program(${variable} ${name} ${ARGN})
  mark_as_advanced(${variable})
  if(NOT ${variable})
    return()
  endif()
  execute_process(COMMAND ${${variable}} -E -x c++ -include mpi.h /dev/null RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    message(STATUS "${${variable}} finds no mpi.h, so this MPI is left out")
    set(${variable} ${variable}-NOTFOUND CACHE FILEPATH "" FORCE)
  endif()
endfunction()

# ballast_mpi_target(TARGET COMPILER): lets a target include the header of an MPI and link its library. COMPILER is the MPI's own; it says
# what it would run.
function(ballast_mpi_target target compiler)
  execute_process(COMMAND ${compiler} -show OUTPUT_VARIABLE shown OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(shown UNIX_COMMAND "${shown}")
  set(folders ${shown})
  list(FILTER folders INCLUDE REGEX "^-I")
  list(TRANSFORM folders REPLACE "^-I" "")
  set(libraries ${shown})
  list(FILTER libraries INCLUDE REGEX "^-(L|l|Wl,)")
  target_include_directories(${target} SYSTEM PRIVATE ${folders})
  target_link_libraries(${target} PRIVATE ${libraries})
endfunction()
