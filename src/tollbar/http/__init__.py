"""The HTTP interface: the routes of `/v1` and the wrappers around them. Translates, authorises, decides nothing."""
