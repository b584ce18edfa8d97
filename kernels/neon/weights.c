#include "../vec/weights.h"
