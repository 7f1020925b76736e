"""What tests share. `support.builders` makes values, `support.servers` starts servers, `support.cluster` runs whole parts, `support.cases` holds tables."""
