# What ctest and all that it starts have in their environment.
set(ENV{TUTTI_CALIBRATE} off)
