"""tools/demo, as far as it goes without a lab."""

import os
import unittest
from unittest import mock

from tools.demonstration import colour


class Colour(unittest.TestCase):
    def chosen(self, terminal: bool, **environment: str) -> str:
        with mock.patch("sys.stdout") as out, mock.patch.dict(os.environ, environment, clear=True):
            out.isatty.return_value = terminal
            return colour()

    def test_none_off_a_terminal_or_where_no_color_says_something(self):
        self.assertEqual(self.chosen(False), "never")
        self.assertEqual(self.chosen(True, NO_COLOR="1"), "never")

    def test_an_empty_no_color_counts_as_unset(self):
        self.assertEqual(self.chosen(True, NO_COLOR=""), "always")
        self.assertEqual(self.chosen(True), "always")


if __name__ == "__main__":
    unittest.main()
