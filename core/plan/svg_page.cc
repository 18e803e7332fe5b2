#include "plan/svg_page.h"

namespace tutti::svg {
namespace {

std::string space_before(std::string_view style) {
  return style.empty() ? "" : fmt::format(" {}", style);
}

} // namespace

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += static_cast<unsigned char>(c) < ' ' ? '?' : c; // control characters are no XML
  }
  return out;
}

std::string head(double width, double height, std::string_view title, std::string_view below) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n",
      width, height);
  out += fmt::format("<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", escape(title));
  out += fmt::format("<text x=\"16\" y=\"30\" font-size=\"20\" font-weight=\"bold\">{}</text>\n", escape(title));
  out += fmt::format("<text x=\"16\" y=\"52\" font-size=\"13\" fill=\"#444\">{}</text>\n", escape(below));
  return out;
}

std::string rect(double x, double y, double width, double height, std::string_view fill, std::string_view style) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"{}/>\n", x, y, width,
                     height, fill, space_before(style));
}

std::string text(double x, double y, std::string_view style, std::string_view words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, space_before(style), escape(words));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"{}/>\n", x1, y1, x2, y2,
                     space_before(style));
}

} // namespace tutti::svg
