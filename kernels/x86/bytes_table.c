#include "../scalar/bytes_table.c"
