/* Included for blocks of LANES channels, each a VEC: activations that tiles apply while outputs are in registers. */

/* v where the mask is set, else u */
#define CHOOSE(mask, v, u) ((VEC)(((mask) & (MASK)(v)) | (~(mask) & (MASK)(u))))

INLINE void NAME(rectify)(VEC *v, int how, float low, float high)
{
    VEC lows = low - (VEC){0}, highs = high - (VEC){0}, none = {0};
    if (how == PLK_RELU)
        *v = CHOOSE(*v <= none, none, *v);
    else
        *v = CHOOSE(*v > highs, highs, CHOOSE(*v < lows, lows, *v));
}
#undef CHOOSE
