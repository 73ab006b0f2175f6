"""Files: programs are saved, loaded and checked."""
