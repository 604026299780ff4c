"""Charts as inline SVG: in percent of the page's width, coloured by the page's style sheet, every text escaped."""
