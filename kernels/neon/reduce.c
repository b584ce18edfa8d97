#include "../vec/reduce.h"
