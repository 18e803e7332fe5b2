// tutti/core/ras/flight_json.h: a flight-recorder file as a part of something larger.
#pragma once
#include "ras/flight_file.h"
#include <nlohmann/json.hpp>

namespace tutti::ras {

nlohmann::ordered_json flight_json(const FlightFile &file);
Result<FlightFile> flight_of(const nlohmann::json &j, const std::string &origin); // as parse_flight()

} // namespace tutti::ras
