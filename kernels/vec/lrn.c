#include "lrn.h"
