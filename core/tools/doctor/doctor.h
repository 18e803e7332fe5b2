// tutti/core/tools/doctor/doctor.h: `tutti doctor`.
#pragma once

namespace tutti::tools {
int doctor_main(int argc, char **argv);
}
