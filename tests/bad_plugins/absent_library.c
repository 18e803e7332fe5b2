/* A library that a plugin is linked to, and that the dynamic linker does not find. */
int tutti_test_absent(void);
int tutti_test_absent(void) {
  return 0;
}
