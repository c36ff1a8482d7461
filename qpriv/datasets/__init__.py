"""Official file formats read into typed samples."""
