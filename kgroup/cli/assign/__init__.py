"""``kgroup assign``: what each assignor would make of a group, side by side, or line by line."""
