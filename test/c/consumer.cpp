// The program in C, compiled as C++, beside the C++ interface.
#include <ballast/ballast.hpp>

#include "consumer.c"
