"""Templates inside of inputs, in Hog and in Liquid."""
