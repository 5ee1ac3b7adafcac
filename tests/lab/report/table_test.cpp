// Tables: what is aligned where, and that no text gets out of its cell.
#include "report/table.hpp"

#include <gtest/gtest.h>

namespace lab_test {
namespace {

using lab::Table;

TEST(Table, AlignsWordsLeftAndNumbersRight) {
  const Table table{"Results", {"optimizer", "loss", "state"}, {{"came", "3.124", "1.2 GB"}, {"adamw", "12.5"}}};
  EXPECT_EQ(lab::table_text(table),
            "Results\n"
            "optimizer   loss   state\n"
            "─────────  ─────  ──────\n"
            "came       3.124  1.2 GB\n"
            "adamw       12.5\n");
}

TEST(Table, CountsColumnsOfTheTerminalNotBytes) {
  EXPECT_EQ(lab::text_width("abc"), 3);
  EXPECT_EQ(lab::text_width("é"), 1);
  EXPECT_EQ(lab::text_width("e\u0301"), 1);
  EXPECT_EQ(lab::text_width("日本"), 4);
  EXPECT_EQ(lab::text_width("😀"), 2);
  EXPECT_EQ(lab::text_width("\xFF\xC3"), 2);  // not UTF-8: a replacement character each
  EXPECT_EQ(lab::table_text({"", {}, {{"日本", "x"}, {"é", "y"}}}), "日本  x\né     y\n");
}

TEST(Table, KeepsACellOnItsLine) {
  EXPECT_EQ(lab::table_text({"a\nb", {"c\td"}, {{"e\x1b[31m"}}}), "a b\nc d\n──────\ne [31m\n");
}

TEST(Table, ARowMayBeLongerThanTheHead) { EXPECT_EQ(lab::table_text({"", {"a"}, {{"b", "c"}}}), "a\n─  ─\nb  c\n"); }

TEST(Table, IsRightAlignedOnlyWhereAllCellsAreNumbers) {
  const Table table{"", {}, {{"-1.5e-3", "1"}, {"~3", "xyz"}, {"nan", "2"}, {"", "3"}, {"-", "4"}}};
  EXPECT_EQ(lab::table_text(table), "-1.5e-3  1\n     ~3  xyz\n    nan  2\n         3\n      -  4\n");
}

TEST(Table, EscapesAllTextInHtml) {
  const Table table{"a<b", {"x&y", "n"}, {{"<script>alert('\"')</script>", "5"}}};
  EXPECT_EQ(
      lab::table_html(table),
      "<table>\n<caption>a&lt;b</caption>\n<thead>\n<tr><th>x&amp;y</th><th class=\"number\">n</th></tr>\n</thead>\n"
      "<tbody>\n<tr><td>&lt;script&gt;alert(&#39;&quot;&#39;)&lt;/script&gt;</td><td class=\"number\">5</td></tr>\n"
      "</tbody>\n</table>\n");
}

TEST(Table, LeavesOutWhatHtmlForbids) {
  EXPECT_EQ(lab::escape_html(std::string("a\0b\x01\x7F\nc\t", 8)), "ab\nc\t");
  EXPECT_EQ(lab::escape_html("\xED\xA0\x80|\xC0\x80|\xF4\x90\x80\x80|\xE2\x82|é"),
            "\uFFFD\uFFFD\uFFFD|\uFFFD\uFFFD|\uFFFD\uFFFD\uFFFD\uFFFD|\uFFFD\uFFFD|é");
}

}  // namespace
}  // namespace lab_test
