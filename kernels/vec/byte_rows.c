/* Loops that the compiler makes vectors of. */
#include "../scalar/byte_rows.c"
