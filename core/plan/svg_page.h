// tutti/core/plan/svg_page.h: what our drawings have in common.
#pragma once
#include <fmt/format.h>
#include <string>
#include <string_view>

namespace tutti::svg {

std::string escape(std::string_view text);
// The start of a page: white, with a title and a line below it. It ends with "</svg>\n".
std::string head(double width, double height, std::string_view title, std::string_view below);

// Elements, a line each. `style`: further attributes.
std::string rect(double x, double y, double width, double height, std::string_view fill, std::string_view style = "");
std::string text(double x, double y, std::string_view style, std::string_view words);
std::string line(double x1, double y1, double x2, double y2, std::string_view style);

} // namespace tutti::svg
