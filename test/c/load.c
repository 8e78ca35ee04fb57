/* Loads the library and looks at the process: no CUDA driver, and no thread beside this one. The BLAS is told to start none by the
   environment (OPENBLAS_NUM_THREADS=1), which must be set before it is loaded. Usage: load LIBRARY */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int threads(void) {
  int count = 0;
  struct dirent* each;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == NULL) return -1;
  while ((each = readdir(tasks)) != NULL) count += each->d_name[0] != '.';
  closedir(tasks);
  return count;
}

static int mapped(const char* name) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps) != NULL) found = found || strstr(line, name) != NULL;
  fclose(maps);
  return found;
}

int main(int argc, char** argv) {
  void* library;
  const char* (*version)(void);
  if (argc != 2) return 2;
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    puts(dlerror());
    return 1;
  }
  *(void**)&version = dlsym(library, "ballast_version");
  printf("version %s, %d thread, CUDA driver %s\n", version(), threads(), mapped("libcuda.so") ? "loaded" : "not loaded");
  return !mapped("libballast_c") || threads() != 1 || mapped("libcuda.so");
}
