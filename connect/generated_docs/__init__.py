"""Pages and schemas of ``docs`` that are written from declarations."""
