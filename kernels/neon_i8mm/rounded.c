/* NEON's file, compiled with the dot product: SDOT adds four products at once. */
#include "../vec/rounded.c"
