#include "../neon_dot/bytes_table.h"

FX_DOT_BYTE_TABLE(.lay_panel_u8 = FX_SYMBOL(lay_panel_u8));
