#include "../vec/mix.h"
