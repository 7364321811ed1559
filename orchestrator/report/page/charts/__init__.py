"""The charts of the report page: functions from table rows to Plotly figures."""
