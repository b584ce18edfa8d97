#include "layer_norm.h"
