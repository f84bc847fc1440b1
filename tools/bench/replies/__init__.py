"""`anabranch bench replies`: how soon and how surely replies come."""
