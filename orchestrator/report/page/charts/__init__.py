"""The charts of the report page: functions from table rows to plotly figures."""
