"""Draw the charts of a comparison's page: ratios with their intervals, and the values of both sides."""
