#include "../vec/instance_norm.h"
