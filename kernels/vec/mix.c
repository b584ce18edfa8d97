#include "mix.h"
