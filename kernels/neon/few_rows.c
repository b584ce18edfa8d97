#include "../vec/few_rows.h"
