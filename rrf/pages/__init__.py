"""HTML pages: templates that share a frame, a style and macros, and charts as inline SVG."""
