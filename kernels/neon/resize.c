#include "../vec/resize.h"
