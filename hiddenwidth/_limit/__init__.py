"""Infinite-size limits of training, and the infinitely wide network of finite depth."""
