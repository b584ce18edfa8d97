#include "../vec/unary.h"
