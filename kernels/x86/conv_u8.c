#include "../scalar/conv_u8.c"
