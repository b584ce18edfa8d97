#include "unary.h"
