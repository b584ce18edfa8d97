#include "../vec/layer_norm.h"
