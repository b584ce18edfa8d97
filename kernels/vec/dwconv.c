#include "dwconv.h"
