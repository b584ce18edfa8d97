#include "../vec/dwconv.h"
