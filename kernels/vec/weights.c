#include "weights.h"
