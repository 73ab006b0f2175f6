"""Memory of a program: how long its arrays live, and which of them take the place of others."""
