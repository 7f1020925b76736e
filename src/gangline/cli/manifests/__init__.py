"""Files given with `-f`, and what is wrong with them."""
