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
