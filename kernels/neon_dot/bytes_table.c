#include "bytes_table.h"

FX_DOT_BYTE_TABLE();
