// tutti/core/tools/map_svg.h: communication maps for people.
#pragma once
#include "tools/map_data.h"

namespace tutti::tools::commmap {

constexpr int kMostDrawn = 512; // ranks; a cell is a pixel or two then

// A heat map per communicator, one below the other, the one with the most bytes first. The same bytes for the same map. An
// error when there is nothing to draw, or too much.
Result<std::string> draw(const Map &map, std::string_view title);
std::string as_text(const Map &map);

// As the extension of the path says: JSON, else a drawing. "-" is standard output.
Status write(const Map &map, const std::string &path, std::string_view title);

} // namespace tutti::tools::commmap
