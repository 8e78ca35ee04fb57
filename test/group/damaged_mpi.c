/* A library to be loaded before a program of MPI (LD_PRELOAD): flips one bit of one message. BALLAST_TEST_DAMAGE has the rank that sends
   it, and its number among the messages of that rank: "1,20". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int MPI_Isend(const void* bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm over, MPI_Request* request) {
  static int sent = 0;
  static unsigned char* damaged = NULL; /* lives until the program ends: MPI may read it for as long */
  const char* const wanted = getenv("BALLAST_TEST_DAMAGE");
  int rank = -1, own = -1, number = -1;
  PMPI_Comm_rank(MPI_COMM_WORLD, &own);
  if (wanted != NULL && sscanf(wanted, "%d,%d", &rank, &number) == 2 && own == rank && sent++ == number && count > 0 && type == MPI_BYTE) {
    damaged = malloc((size_t)count);
    if (damaged == NULL) return MPI_ERR_NO_MEM;
    memcpy(damaged, bytes, (size_t)count);
    damaged[count - 1] ^= 4;
    bytes = damaged;
  }
  return PMPI_Isend(bytes, count, type, to, tag, over, request);
}
