#include "instance_norm.h"
