"""Groups that another server serves: an APIService names it, and requests are passed on."""
