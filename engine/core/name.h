/* Names that stay valid: one copy of each text. */
#ifndef PLAIT_NAME_H
#define PLAIT_NAME_H
/* cffi reads from here on: */
const char *pl_name(const char *text);        /* the one copy of a text, never freed; NULL when out of memory */
/* cffi stops reading here */
#endif
