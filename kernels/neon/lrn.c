#include "../vec/lrn.h"
