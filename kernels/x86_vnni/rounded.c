/* The file of all instruction sets, compiled with VNNI: VPDPBUSD adds four products at once. */
#include "../vec/rounded.c"
