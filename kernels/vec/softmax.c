#include "softmax.h"
