#include "../vec/pool.h"
