"""The machine's own figures: matrix products, memory, copies, links. They are measured, judged, stored and shown here."""
