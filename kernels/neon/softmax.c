#include "../vec/softmax.h"
